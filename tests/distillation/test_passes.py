"""One pass, end to end, through the real SDK against a scriptable server."""

from __future__ import annotations

import copy
import json
from datetime import timedelta

import pytest
from django.utils import timezone
from pytest_django import Settings

from agentmemory.authorship import Author
from agentmemory.models import Agent, Memory, MemorySource, Message, Provider
from agentmemory.services import curation, removals, transcripts
from agentmemory.services.transcripts import NewMessage
from distillation import prompts
from distillation.models import Cursor, DistillationPass
from distillation.services import distilling, gates, reading, replay
from sessions_exec import faults
from tests.distillation.conftest import Tell, cursor_of
from tests.support import model_server
from tests.support.model_server import ModelServer

pytestmark = pytest.mark.django_db


def item(key: str = "port", content: str = "The service listens on port 8080.", **values: object) -> dict[str, object]:
    return {"key": key, "content": content, "tags": [], "sources": [1], "quote": "", **values}


def run(cursor: Cursor) -> distilling.Result:
    return distilling.run_cursor(cursor_id=cursor.pk)


def expire_backoff(cursor: Cursor) -> None:
    Cursor.objects.filter(pk=cursor.pk).update(next_attempt_at=timezone.now() - timedelta(seconds=1))


def test_d1_a_pass_writes_its_memories_and_moves_the_position(server: ModelServer, tell: Tell, agent: Agent) -> None:
    session = tell("We listen on port 8080.", "Deploys happen on Tuesdays.")
    result = run(cursor_of(session))
    cursor = cursor_of(session)
    assert (result.state, cursor.position, cursor.watermark, cursor.holder) == ("applied", 3, 3, "")
    memories = Memory.objects.order_by("created_at", "key")
    assert {m.content for m in memories} == {"We listen on port 8080.", "Deploys happen on Tuesdays."}
    assert all(m.owner == agent and m.origin == "distilled" and m.version == 1 for m in memories)
    source = MemorySource.objects.get(memory__content="We listen on port 8080.")
    assert (source.session_name, source.uid, source.seq, source.verified) == ("s1", "u1", 1, True)


def test_d25_a_pass_keeps_what_it_took_and_what_it_cost(server: ModelServer, tell: Tell) -> None:
    Provider.objects.create(
        name="anthropic",
        kind="anthropic",
        key_variable="ANTHROPIC_API_KEY",
        default_model="m",
        price_in=3,
        price_out=15,
    )
    session = tell("We listen on port 8080.")
    row = run(cursor_of(session)).row
    assert row is not None
    row.refresh_from_db()
    assert (row.provider_name, row.model, row.extractor, row.prompt_version) == (
        "anthropic",
        "m",
        "anthropic",
        prompts.VERSION,
    )
    assert (row.input_tokens, row.output_tokens) == (100, 20)
    assert row.cost is not None
    assert float(row.cost) == pytest.approx(0.0006)
    assert json.loads(row.answer)["memories"][0]["sources"] == [1]
    assert row.seconds is not None


def test_d6_nothing_new_is_no_call_and_no_row(server: ModelServer, tell: Tell) -> None:
    session = tell("We listen on port 8080.")
    run(cursor_of(session))
    before = DistillationPass.objects.count()
    assert run(cursor_of(session)).state == "idle"
    assert len(server.requests) == 1
    assert DistillationPass.objects.count() == before


def test_d3_nothing_of_an_unfinished_turn_is_read(server: ModelServer, tell: Tell) -> None:
    session = tell("We listen on port 8080.", end=False)
    assert cursor_of(session).watermark == 0
    assert run(cursor_of(session)).state == "idle"
    assert server.requests == []


@pytest.mark.parametrize("delivery", ["enqueued", "deferred"])
def test_d3_the_window_ends_before_a_message_that_will_change(server: ModelServer, tell: Tell, delivery: str) -> None:
    session = tell("First.", NewMessage(uid="waits", type="user", content="Second.", delivery=delivery), "Third.")
    assert cursor_of(session).watermark == 1
    run(cursor_of(session))
    assert [seq for seq, _, _ in server.requests[0].shown] == [1]
    transcripts.set_delivery(session=session, uid="waits", delivery="consumed")
    assert cursor_of(session).watermark == 4
    run(cursor_of(session))
    assert [seq for seq, _, _ in server.requests[1].shown] == [2, 3]


def test_d4_what_is_no_speech_is_not_shown(server: ModelServer, tell: Tell) -> None:
    session = tell(
        NewMessage(uid="sys", type="system", content="System text."),
        NewMessage(uid="failed", type="user", content="Never seen.", delivery="failed"),
        NewMessage(uid="side", type="assistant", content="Side text.", parent_tool_use_id="t1"),
        NewMessage(uid="tool", type="user", content=[{"type": "tool_result", "content": "Tool text."}]),
        NewMessage(uid="note", type="user", content="<system-reminder>Reminder text.</system-reminder>"),
        NewMessage(uid="gone", type="user", content="Retracted text."),
        NewMessage(uid="old", type="user", content="Replaced text."),
        NewMessage(uid="new", type="user", content="Replacing text.", supersedes=["old"]),
        NewMessage(
            uid="said",
            type="assistant",
            content=[{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Said."}],
        ),
        end=False,
    )
    removals.retract(session=session, uids=["gone"])
    tell(end=True)
    run(cursor_of(session))
    assert [(seq, text) for seq, _, text in server.requests[0].shown] == [(8, "Replacing text."), (9, "Said.")]


def test_d5_a_long_stretch_without_text_is_passed_over_without_a_call(server: ModelServer, tell: Tell) -> None:
    quiet = [
        NewMessage(uid=f"t{n}", type="user", content=[{"type": "tool_result", "content": "x"}]) for n in range(400)
    ]
    session = tell(*quiet)
    assert run(cursor_of(session)).state == "passed"
    assert cursor_of(session).position == 401
    assert server.requests == []
    tell("Then something is said.")
    run(cursor_of(session))
    assert [seq for seq, _, _ in server.requests[0].shown] == [402]


@pytest.mark.parametrize("at_once", [1, 4, 300])
def test_d2_an_estimate_reads_the_windows_that_passes_would(
    server: ModelServer, tell: Tell, settings: Settings, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    settings.AGENTMEMORY_MESSAGES_PER_PASS = 2
    settings.AGENTMEMORY_CHARS_PER_TRANSCRIPT = 200
    monkeypatch.setattr(reading, "READ_AT_ONCE", at_once)
    silent = [NewMessage(uid=f"s{n}", type="assistant", content="") for n in range(3)]
    cursor = cursor_of(tell("one", "two", *silent, "three", "x" * 190, "y" * 190, "four", "five", "six"))
    place, one_by_one = copy.copy(cursor), []
    while place.position < place.watermark:
        one_by_one.append(reading.next_window(place))
        place.position = one_by_one[-1].end

    assert list(reading.windows_ahead(cursor)) == one_by_one
    assert len(one_by_one) == 6


def test_d5_text_behind_a_stretch_without_text_is_read_in_the_same_pass(server: ModelServer, tell: Tell) -> None:
    quiet = [NewMessage(uid=f"t{n}", type="user", content=[{"type": "tool_result", "content": "x"}]) for n in range(90)]
    session = tell("Before.", *quiet, "After.")
    run(cursor_of(session))
    assert [seq for seq, _, _ in server.requests[0].shown] == [1, 92]


FAILURES = [
    (model_server.status(500), "server"),
    (model_server.status(529), "overloaded"),
    (model_server.status(429), "rate_limited"),
    (model_server.drop(), "connection"),
    (model_server.error_after_text(), "server"),
    (model_server.empty(), "empty"),
    (model_server.refusal(), "refusal"),
    (model_server.raw_text('{"memories": [{"key": '), "malformed"),
    (model_server.raw_text('{"facts": []}'), "wrong_shape"),
    (model_server.raw_text("[]"), "wrong_shape"),
    (model_server.cut(), "cut"),
    (model_server.status(400), "invalid_request"),
]


@pytest.mark.parametrize(("behaviour", "kind"), FAILURES, ids=[kind + str(n) for n, (_, kind) in enumerate(FAILURES)])
def test_d7_a_failure_is_never_taken_for_nothing_found(
    server: ModelServer, tell: Tell, behaviour: model_server.Behaviour, kind: str
) -> None:
    session = tell("We listen on port 8080.")
    server.script(behaviour)
    began = timezone.now()
    result = run(cursor_of(session))
    cursor = cursor_of(session)
    assert result.state == "failed"
    assert result.row is not None
    if kind != "server":
        assert result.row.failure == kind
    assert (cursor.position, cursor.failures, cursor.holder) == (0, 1, "")
    assert cursor.last_error == result.row.error != ""
    assert cursor.next_attempt_at is not None
    assert 1700 < (cursor.next_attempt_at - began).total_seconds() < 1760
    assert Memory.objects.count() == 0
    assert run(cursor).state == "backing_off"
    assert len(server.requests) == 1
    expire_backoff(cursor)
    assert run(cursor).state == "applied"
    assert (cursor_of(session).failures, cursor_of(session).next_attempt_at) == (0, None)


def test_d7_the_wait_doubles_and_is_capped_and_the_provider_may_ask_for_longer(
    server: ModelServer, tell: Tell, settings: Settings
) -> None:
    settings.AGENTMEMORY_BACKOFF_CAP = 5000
    cursor = cursor_of(tell("We listen on port 8080."))
    waits = []
    server.script(*[model_server.status(500)] * 3, model_server.status(529, headers={"retry-after": "20000"}))
    for _ in range(4):
        run(cursor)
        cursor.refresh_from_db()
        assert cursor.next_attempt_at is not None
        waits.append(round((cursor.next_attempt_at - timezone.now()).total_seconds(), -1))
        expire_backoff(cursor)
    assert waits == [1740, 3480, 5000, 20000]


def test_d7_an_answer_cut_by_its_limit_is_halved_at_once_and_never_sent_again(server: ModelServer, tell: Tell) -> None:
    session = tell("One.", "Two.", "Three.", "Four.")
    server.script(model_server.cut())
    run(cursor_of(session))
    assert [[seq for seq, _, _ in r.shown] for r in server.requests] == [[1, 2, 3, 4], [1, 2], [3, 4]]
    assert cursor_of(session).position == 5


def test_d8_an_empty_list_is_a_success(server: ModelServer, tell: Tell) -> None:
    session = tell("Hello there.")
    server.script(model_server.memories([]))
    assert run(cursor_of(session)).state == "empty"
    assert cursor_of(session).position == 2


def test_d9_one_bad_candidate_is_refused_and_the_others_are_written(server: ModelServer, tell: Tell) -> None:
    session = tell("We listen on port 8080.")
    server.script(
        model_server.memories([item(), item("other", "x", sources=[99]), item("", "y"), item("big", "z" * 2001)])
    )
    row = run(cursor_of(session)).row
    assert row is not None
    assert [each["key"] for each in row.written] == ["port"]
    assert len(row.refused) == 3
    assert Memory.objects.count() == 1


def test_d9_a_pass_whose_every_candidate_is_refused_has_failed(server: ModelServer, tell: Tell) -> None:
    session = tell("We listen on port 8080.")
    server.script(model_server.memories([item(sources=[7])]))
    result = run(cursor_of(session))
    assert (result.state, cursor_of(session).position) == ("failed", 0)
    assert result.row is not None
    assert len(DistillationPass.objects.get(pk=result.row.pk).refused) == 1


def test_d9_what_the_agent_has_already_is_known_and_gains_a_source(server: ModelServer, tell: Tell) -> None:
    session = tell("We listen on port 8080.")
    server.script(model_server.memories([item()]))
    run(cursor_of(session))
    tell("As I said, port 8080.")
    near = item("listening-port", "The service listens on the port 8080.", sources=[3])
    server.script(model_server.memories([item(sources=[3]), near]))
    row = run(cursor_of(session)).row
    assert row is not None
    assert row.outcome == "applied"
    memory = Memory.objects.get()
    assert memory.version == 1
    assert sorted(memory.sources.values_list("seq", flat=True)) == [1, 3]


def test_d11_the_model_sees_related_memories_and_updates_by_key(server: ModelServer, tell: Tell) -> None:
    session = tell("We listen on port 8080.")
    server.script(model_server.memories([item()]))
    run(cursor_of(session))
    tell("The port is 9090 from now on.")
    server.script(model_server.memories([item(content="The service listens on port 9090.", sources=[3])]))
    run(cursor_of(session))
    assert "The service listens on port 8080." in server.requests[1].prompt
    memory = Memory.objects.get()
    assert (memory.version, memory.content) == (2, "The service listens on port 9090.")


def test_d11_a_curated_memory_of_the_same_key_is_untouched(server: ModelServer, tell: Tell, agent: Agent) -> None:
    curated = Memory.objects.create(
        space=agent.space, owner=agent, origin="curated", key="port", content="Ask ops.", created_by="agent:ada"
    )
    server.script(model_server.memories([item()]))
    run(cursor_of(tell("We listen on port 8080.")))
    curated.refresh_from_db()
    assert (curated.content, curated.version) == ("Ask ops.", 1)
    assert Memory.objects.filter(key="port", origin="distilled").count() == 1


def test_a_memory_that_a_person_edited_is_not_overwritten_by_a_pass(server: ModelServer, tell: Tell) -> None:
    session = tell("We listen on port 8080.")
    server.script(model_server.memories([item()]))
    run(cursor_of(session))
    operator = Author(kind="operator", name="olga")
    curation.edit(memory_id=Memory.objects.get().pk, author=operator, reason="wrong", content="It listens on 443.")
    tell("The port is 9090.")
    server.script(
        model_server.memories(
            [item(content="It listens on 9090.", sources=[3]), item("fresh", "Fresh fact.", sources=[3])]
        )
    )
    row = run(cursor_of(session)).row
    assert row is not None
    assert "operator:olga" in row.refused[0]["reason"]
    assert Memory.objects.get(key="port").content == "It listens on 443."


def test_d13_a_secret_reaches_neither_the_store_nor_the_model(server: ModelServer, tell: Tell) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    session = tell(f"Use {secret} to push.")
    run(cursor_of(session))
    assert secret not in json.dumps(server.requests[0].body)
    message = Message.objects.get(session=session, seq=1)
    assert secret not in json.dumps(message.content) + message.text
    assert sum(message.redactions.values()) == 1


def test_d15_a_stored_answer_is_applied_without_a_second_call(server: ModelServer, tell: Tell) -> None:
    session = tell("We listen on port 8080.")

    class Dead(BaseException):
        pass

    def die(point: str) -> None:
        if point == "write.before":
            raise Dead

    faults.install(die)
    try:
        with pytest.raises(Dead):
            run(cursor_of(session))
    finally:
        faults.install(None)
    Cursor.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert run(cursor_of(session)).state == "applied"
    assert len(server.requests) == 1
    assert cursor_of(session).position == 2
    assert Memory.objects.count() == 1
    assert run(cursor_of(session)).state == "idle"


def test_d14_a_worker_that_lost_its_lease_writes_nothing(server: ModelServer, tell: Tell) -> None:
    session = tell("We listen on port 8080.")
    cursor = cursor_of(session)

    def lose(point: str) -> None:
        if point == "call.after":
            Cursor.objects.revoke(cursor.pk)

    faults.install(lose)
    try:
        result = run(cursor)
    finally:
        faults.install(None)
    assert result.state == "lost"
    assert Memory.objects.count() == 0
    assert cursor_of(session).position == 0
    row = DistillationPass.objects.get()
    assert (row.outcome, row.input_tokens) == ("running", 100)
    # What was paid is not lost: whoever has the lease next makes the memories of the answer (D15).
    assert run(cursor).state == "applied"
    assert (len(server.requests), DistillationPass.objects.count(), Memory.objects.count()) == (1, 1, 1)


def test_d16_a_paused_agent_is_not_distilled_even_when_its_task_comes(
    server: ModelServer, tell: Tell, agent: Agent
) -> None:
    session = tell("We listen on port 8080.")
    agent.status = Agent.Status.PAUSED
    agent.save()
    result = distilling.run_pass(cursor_id=cursor_of(session).pk)
    assert result.state == "blocked"
    assert server.requests == []


def test_d17_a_provider_that_cannot_extract_is_skipped_without_failure(
    server: ModelServer, tell: Tell, agent: Agent
) -> None:
    agent.provider = Provider.objects.create(name="runner", kind="acp")
    agent.save()
    session = tell("We listen on port 8080.")
    result = run(cursor_of(session))
    assert (result.state, cursor_of(session).failures) == ("skipped", 0)
    assert "runner" in result.line
    agent.provider = None
    agent.save()
    assert run(cursor_of(session)).state == "applied"


@pytest.mark.parametrize("code", [401, 402, 403])
def test_d19_a_provider_that_refuses_the_key_pauses_as_a_whole(server: ModelServer, tell: Tell, code: int) -> None:
    first, second = tell("One fact here.", name="s1"), tell("Another fact here.", name="s2")
    server.script(model_server.status(code))
    assert distilling.run_pass(cursor_id=cursor_of(first).pk).state == "failed"
    assert cursor_of(first).failures == 0
    assert run(cursor_of(first)).state == "blocked"
    assert run(cursor_of(second)).state == "blocked"
    assert len(server.requests) == 1
    provider = Provider.objects.get(name="anthropic")
    assert provider.paused_until is not None
    assert provider.failures == 1
    Provider.objects.update(paused_until=timezone.now() - timedelta(seconds=1))
    assert run(cursor_of(second)).state == "applied"
    assert run(cursor_of(first)).state == "applied"
    assert Provider.objects.get(name="anthropic").paused_until is None


def test_d19_when_the_pause_ends_one_call_tries_and_the_others_wait(tell: Tell, agent: Agent) -> None:
    provider = Provider.objects.create(
        name="p", kind="anthropic", paused_until=timezone.now() - timedelta(seconds=1), failures=1
    )
    now = timezone.now()
    assert gates.probe(provider, now=now)
    assert not gates.probe(provider, now=now)
    provider.refresh_from_db()
    assert not gates.probe(provider, now=now)


def test_d20_a_poisonous_window_is_halved_until_its_message_stands_alone_and_is_quarantined(
    server: ModelServer, tell: Tell
) -> None:
    session = tell("One.", "Two.", "Poison.", "Four.")

    def answer(request: model_server.Recorded) -> model_server.Reply:
        if "Poison." in request.prompt:
            return model_server.message("no json here")
        return model_server.one_memory_per_user_line(request)

    server.default = answer
    cursor = cursor_of(session)
    for _ in range(30):
        run(cursor)
        expire_backoff(cursor)
        cursor.refresh_from_db()
        if cursor.lag == 0:
            break
    assert cursor.position == 5
    assert {m.content for m in Memory.objects.all()} == {"One.", "Two.", "Four."}
    quarantine = cursor.quarantines.get()
    assert (quarantine.uid, quarantine.seq, quarantine.state) == ("u3", 3, "held")
    sizes = [len(r.shown) for r in server.requests]
    assert sizes[:4] == [4, 4, 4, 2]


def test_d20_failures_of_the_provider_never_halve_or_quarantine(server: ModelServer, tell: Tell) -> None:
    session = tell("One.", "Two.")
    server.default = model_server.status(503)
    cursor = cursor_of(session)
    for _ in range(8):
        run(cursor)
        expire_backoff(cursor)
    cursor.refresh_from_db()
    assert (cursor.failures, cursor.window_limit, cursor.position) == (8, None, 0)
    assert cursor.quarantines.count() == 0


def test_d21_a_backlog_drains_up_to_the_limit_and_says_why_it_waits(
    server: ModelServer, tell: Tell, settings: Settings
) -> None:
    settings.AGENTMEMORY_MESSAGES_PER_PASS = 2
    settings.AGENTMEMORY_PASSES_PER_RUN = 3
    session = tell(*[f"Fact number {n}." for n in range(10)])
    run(cursor_of(session))
    cursor = cursor_of(session)
    assert (len(server.requests), cursor.position) == (3, 6)
    assert "next tick" in cursor.waits_for


def test_d21_the_daily_budget_of_the_space_stops_the_calls_visibly(
    server: ModelServer, tell: Tell, agent: Agent
) -> None:
    agent.space.daily_tokens = 100
    agent.space.save()
    run(cursor_of(tell("One fact here.")))
    session = tell("Another fact here.")
    result = run(cursor_of(session))
    assert result.state == "blocked"
    assert "budget" in result.line
    assert len(server.requests) == 1


def test_d25_the_prompt_made_again_is_the_one_that_was_sent_to_the_character(server: ModelServer, tell: Tell) -> None:
    session = tell("We listen on port 8080.")
    server.script(model_server.memories([item()]))
    run(cursor_of(session))
    tell("The port is 9090 from now on.", "x" * 5000)
    server.script(model_server.memories([item(content="The service listens on port 9090.", sources=[3])]))
    row = run(cursor_of(session)).row
    assert row is not None
    assert row.known
    prompt = replay.prompt_of(DistillationPass.objects.get(pk=row.pk))
    assert prompt is not None
    assert prompt.user == server.requests[1].prompt
    assert prompt.system == server.requests[1].body["system"]


def test_d15_a_stored_answer_that_names_known_memories_is_applied_after_a_crash(
    server: ModelServer, tell: Tell
) -> None:
    session = tell("We listen on port 8080.")
    server.script(model_server.memories([item()]))
    run(cursor_of(session))
    tell("The port is 9090 from now on.")
    server.script(model_server.memories([item(content="The service listens on port 9090.", sources=[3])]))

    class Dead(BaseException):
        pass

    def die(point: str) -> None:
        if point == "write.before":
            raise Dead

    faults.install(die)
    try:
        with pytest.raises(Dead):
            run(cursor_of(session))
    finally:
        faults.install(None)
    Cursor.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert run(cursor_of(session)).state == "applied"
    assert Memory.objects.get().content == "The service listens on port 9090."
    assert len(server.requests) == 2
