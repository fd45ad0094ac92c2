"""Running sessions over the JSON views, as an outside runner does."""

from __future__ import annotations

import threading
import time
import uuid
from typing import Any

import pytest
from django.db import OperationalError, connection

from agentmemory.models import Session
from sessions_exec.models import Execution
from sessions_exec.services import recovery, waiting
from tests.factories import AgentFactory
from tests.support import clients
from tests.support.clients import Answer, Api, assistant, result, user
from tests.support.running import expire

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(api: Api) -> Session:
    api.put("/sessions/s1")
    return Session.objects.get(name="s1")


def acquire(api: Api, owner: str = "runner", **more: Any) -> dict[str, Any]:
    answer = api.post("/sessions/s1/execution", {"owner": owner, **more})
    assert answer.status == 201, answer
    return dict(answer.body)


def of(execution: dict[str, Any]) -> dict[str, Any]:
    return {"id": execution["id"], "epoch": execution["epoch"]}


def append(api: Api, *messages: dict[str, Any], **more: Any) -> Answer:
    return api.post("/sessions/s1/messages", {"messages": list(messages), **more})


def release(api: Api, execution: dict[str, Any]) -> Answer:
    return api.call("DELETE", "/sessions/s1/execution", of(execution))


def test_a_session_is_run_from_its_input_to_its_end(api: Api, session: Session) -> None:
    admitted = api.post("/sessions/s1/inputs", {"id": "i1", "prompt": "Do it."})
    assert (admitted.status, admitted.body["state"], admitted.body["delivery"]) == (201, "pending", "steer")
    assert api.post("/sessions/s1/inputs", {"id": "i1", "prompt": "Do it."}).status == 200
    assert [row["id"] for row in api.get("/sessions/s1/inputs").body["items"]] == ["i1"]

    execution = acquire(api, ttl_seconds=60)
    assert (execution["epoch"], execution["phase"]) == (1, "ready")
    shown = api.get("/sessions/s1").body["execution"]
    assert shown == {"holder": "runner", "epoch": 1, "phase": "ready", "expires_at": execution["expires_at"]}

    promoted = api.post("/sessions/s1/execution/promote", {**of(execution), "boundary": "step"}).body
    assert promoted == {"items": [{"id": "i1", "uid": "i1", "seq": 1, "prompt": "Do it.", "delivery": "steer"}]}
    renewed = api.patch("/sessions/s1/execution", {**of(execution), "phase": "unknown", "assistant_uid": "a1"}).body
    assert (renewed["phase"], renewed["interrupted"]) == ("unknown", False)
    assert append(api, assistant("a1"), result("r1"), execution=of(execution)).status == 201
    assert api.post("/sessions/s1/interrupt").body == {"interrupted": True}
    assert api.patch("/sessions/s1/execution", {**of(execution), "phase": "safe"}).body["interrupted"] is True
    assert release(api, execution).body == {"released": True, "pending": 0}
    assert api.post("/sessions/s1/interrupt").body == {"interrupted": False}

    assert api.get("/sessions/s1").body["execution"] is None
    first = api.get("/sessions/s1/events?limit=6").body
    assert [event["seq"] for event in first["items"]] == [1, 2, 3, 4, 5, 6]
    rest = api.get(f"/sessions/s1/events?after={first['next']}").body
    assert rest["next"] is None
    assert [event["type"] for event in first["items"] + rest["items"]] == [
        "session.created",
        "input.admitted",
        "execution.acquired",
        "message.appended",
        "input.promoted",
        "execution.phase",
        "message.appended",
        "message.appended",
        "turn.ended",
        "execution.interrupted",
        "execution.phase",
        "execution.released",
    ]
    assert first["items"][3]["data"]["content"] == "Do it."


def test_a_live_execution_keeps_others_out(api: Api, session: Session) -> None:
    execution = acquire(api, "one")
    refused = api.post("/sessions/s1/execution", {"owner": "one"})
    assert (refused.status, refused.kind) == (409, "lease-held")
    assert (refused.body["holder"], refused.body["expires_at"]) == ("one", execution["expires_at"])

    for answer in (
        append(api, user("u1")),
        api.delete("/sessions/s1"),
        api.post("/sessions/s1/rewind", {"after_uid": "u0"}),
    ):
        assert (answer.status, answer.kind) == (409, "lease-held")
    assert append(api, user("u1"), execution=of(execution)).status == 201


@pytest.mark.parametrize(
    "stale", [{"epoch": 2}, {"epoch": 0}, {"id": str(uuid.uuid4())}, {"id": "no such"}, {"id": 7}, {}]
)
def test_an_id_an_epoch_or_an_expiry_that_does_not_hold_is_lease_lost(
    api: Api, session: Session, stale: dict[str, Any]
) -> None:
    execution = {**acquire(api), **stale}
    if not stale:
        expire(session)
    for answer in (
        append(api, user("u1"), execution=of(execution)),
        api.patch("/sessions/s1/execution", of(execution)),
        api.post("/sessions/s1/execution/promote", {**of(execution), "boundary": "idle"}),
        release(api, execution),
    ):
        assert (answer.status, answer.kind) == (409, "lease-lost")
    assert api.get("/sessions/s1/messages").body["items"] == []


def test_a_recovery_is_seen_in_the_transcript_the_inputs_and_the_log(api: Api, session: Session) -> None:
    execution = acquire(api)
    tool = {"type": "tool_use", "id": "t1", "name": "shell", "input": {}}
    append(api, assistant("a1", [tool]), execution=of(execution))
    api.patch("/sessions/s1/execution", {**of(execution), "phase": "unknown"})
    expire(session)
    assert api.get("/sessions/s1").body["execution"] is None
    recovery.scan()

    (message,) = api.get("/sessions/s1/messages").body["items"]
    assert message["is_error"]
    assert message["tool_outcomes"]["t1"].startswith("outcome unknown")
    (waiting_input,) = api.get("/sessions/s1/inputs").body["items"]
    assert (waiting_input["kind"], waiting_input["delivery"]) == ("continuation", "queue")
    types = [event["type"] for event in api.get("/sessions/s1/events").body["items"]]
    assert types.count("execution.recovered") == 1
    assert acquire(api, "next")["epoch"] == 2


def test_s5_an_input_says_why_it_waits_as_the_console_does(api: Api, session: Session) -> None:
    def reasons() -> list[str | None]:
        return [row["reason"] for row in api.get("/sessions/s1/inputs").body["items"]]

    first = api.post("/sessions/s1/inputs", {"id": "i1", "prompt": "Do it."}).body
    api.post("/sessions/s1/inputs", {"id": "i2", "prompt": "Later.", "delivery": "queue"})
    api.post("/sessions/s1/inputs", {"id": "i3", "prompt": "At some time.", "resume": False})
    nobody = "for a runner: nobody runs the session"
    assert first["reason"] == nobody
    assert reasons() == [nobody, nobody, "nobody wants it run now"]

    execution = acquire(api, ttl_seconds=60)
    step = "for the next step of the run"
    assert reasons() == [step, "until the run would go idle", step]
    assert api.patch("/sessions/s1/inputs/i2", {"delivery": "steer"}).body["reason"] == step
    assert api.delete("/sessions/s1/inputs/i2").body["reason"] is None

    expire(session)
    assert reasons() == ["the execution has expired: what it left is looked at first"] * 2
    assert execution["epoch"] == 1


def test_s5_an_input_that_this_services_runner_left_says_what_keeps_it(api: Api, session: Session) -> None:
    api.post("/sessions/s1/inputs", {"id": "i1", "prompt": "Do it."})
    release(api, acquire(api))
    Execution.objects.update(waits_for="the provider acme is paused")
    assert api.get("/sessions/s1/inputs").body["items"][0]["reason"] == "the provider acme is paused"


def test_inputs_are_flipped_and_cancelled_until_they_are_promoted(api: Api, session: Session) -> None:
    for name in ("a/b", "i2"):
        api.post("/sessions/s1/inputs", {"id": name, "prompt": [{"type": "text", "text": name}], "delivery": "queue"})
    assert api.patch("/sessions/s1/inputs/a%2Fb", {"delivery": "steer"}).body["delivery"] == "steer"
    assert api.delete("/sessions/s1/inputs/i2").body["state"] == "cancelled"
    conflict = api.post("/sessions/s1/inputs", {"id": "a/b", "prompt": "Other.", "delivery": "queue"})
    assert (conflict.status, conflict.kind) == (409, "input-conflict")

    api.post("/sessions/s1/execution/promote", {**of(acquire(api)), "boundary": "step"})
    for answer in (
        api.patch("/sessions/s1/inputs/a%2Fb", {"delivery": "queue"}),
        api.delete("/sessions/s1/inputs/a%2Fb"),
    ):
        assert (answer.status, answer.kind) == (409, "input-conflict")
    assert api.delete("/sessions/s1/inputs/none").status == 404


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/inputs", {"id": "", "prompt": "x"}),
        ("POST", "/inputs", {"id": "i", "prompt": 7}),
        ("POST", "/inputs", {"id": "i", "prompt": ""}),
        ("POST", "/inputs", {"id": "i", "prompt": "x", "delivery": "fax"}),
        ("POST", "/execution", {}),
        ("POST", "/execution", {"owner": ""}),
        ("POST", "/execution", {"owner": "  "}),
        ("POST", "/execution", {"owner": "x", "ttl_seconds": 0}),
        ("POST", "/execution", {"owner": "x", "ttl_seconds": 301}),
        ("PATCH", "/execution", {"id": "x"}),
        ("PATCH", "/execution", {"id": "x", "epoch": 1, "phase": "asleep"}),
        ("POST", "/execution/promote", {"id": "x", "epoch": 1, "boundary": "end"}),
        ("DELETE", "/execution", {}),
        ("GET", "/events?wait=31", None),
        ("GET", "/events?wait=-1", None),
        ("GET", "/events?limit=501", None),
        ("GET", "/inputs?after=nowhere", None),
    ],
)
def test_bad_input_is_422(api: Api, session: Session, method: str, path: str, body: Any) -> None:
    assert api.call(method, "/sessions/s1" + path, body).status == 422


def test_another_agents_session_is_not_there(api: Api, other: Api, session: Session) -> None:
    execution = acquire(api)
    for answer in (
        other.post("/sessions/s1/inputs", {"id": "i", "prompt": "x"}),
        other.get("/sessions/s1/inputs"),
        other.patch("/sessions/s1/inputs/i", {"delivery": "queue"}),
        other.delete("/sessions/s1/inputs/i"),
        other.post("/sessions/s1/execution", {"owner": "x"}),
        other.patch("/sessions/s1/execution", of(execution)),
        other.post("/sessions/s1/execution/promote", {**of(execution), "boundary": "step"}),
        release(other, execution),
        other.post("/sessions/s1/interrupt"),
        other.get("/sessions/s1/events"),
    ):
        assert answer.status == 404


def test_a_space_token_runs_the_sessions_of_its_agents(whole_space: Api, api: Api, session: Session) -> None:
    answer = whole_space.post("/sessions/s1/execution?owner=ada", {"owner": "runner"})
    assert answer.status == 201


@pytest.fixture
def committed(transactional_db: None) -> Api:
    api = clients.of_agent(AgentFactory.create())
    api.put("/sessions/s1")
    return api


def _later(seconds: float, call: Any) -> threading.Thread:
    def run() -> None:
        time.sleep(seconds)
        call()
        connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.django_db(transaction=True)
def test_a_waiting_reader_is_answered_when_something_comes(committed: Api) -> None:
    thread = _later(0.5, lambda: append(committed, user("u1")))
    before = time.monotonic()
    found = committed.get("/sessions/s1/events?after=1&wait=20").body["items"]
    thread.join()

    assert [event["type"] for event in found] == ["message.appended"]
    assert 0.4 < time.monotonic() - before < 10


@pytest.mark.django_db(transaction=True)
def test_a_waiting_reader_is_answered_with_nothing_when_its_time_is_over(committed: Api) -> None:
    before = time.monotonic()
    assert committed.get("/sessions/s1/events?after=1&wait=0.7").body == {"items": [], "next": None}
    assert 0.6 < time.monotonic() - before < 10


@pytest.mark.django_db(transaction=True)
def test_a_waiting_reader_is_answered_when_the_session_goes(committed: Api) -> None:
    thread = _later(0.5, lambda: committed.delete("/sessions/s1"))
    before = time.monotonic()
    assert committed.get("/sessions/s1/events?after=1&wait=20").body["items"] == []
    thread.join()
    assert time.monotonic() - before < 10


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("error", [OperationalError, RuntimeError])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_look_that_fails_keeps_no_reader_waiting_then_or_later(
    committed: Api, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    look, before = waiting._look, time.monotonic()

    def fail(waiters: list[Any]) -> None:
        monkeypatch.setattr(waiting, "_look", look)
        raise error("no look this time")

    monkeypatch.setattr(waiting, "_look", fail)
    assert committed.get("/sessions/s1/events?after=1&wait=20").body["items"] == []
    thread = _later(0.5, lambda: append(committed, user("u1")))
    assert len(committed.get("/sessions/s1/events?after=1&wait=20").body["items"]) == 1
    thread.join()
    assert time.monotonic() - before < 20


@pytest.mark.django_db(transaction=True)
def test_too_many_readers_do_not_wait(committed: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MOST_WAITING", 0)
    answer = committed.get("/sessions/s1/events?after=1&wait=5")
    assert answer.status == 429
    assert answer.headers["Retry-After"]
    assert committed.get("/sessions/s1/events?after=0&wait=5").status == 200


@pytest.mark.django_db(transaction=True)
def test_readers_wait_without_a_database_connection(committed: Api) -> None:
    def read() -> None:
        answers.append(committed.get("/sessions/s1/events?after=1&wait=25").status)
        connection.close()

    answers: list[int] = []
    threads = [threading.Thread(target=read) for _ in range(20)]
    for thread in threads:
        thread.start()
    while len(waiting._waiters) < 20:
        time.sleep(0.05)
    time.sleep(0.5)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        connections = cursor.fetchone()[0]
    append(committed, user("u1"))
    for thread in threads:
        thread.join()
    assert answers == [200] * 20
    # Ours, and that of the one thread that looks for all.
    assert connections <= 3
