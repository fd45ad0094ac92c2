"""Limits and manners of the JSON views: how often, once, not again, and not at full length."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agentmemory.authorship import Author
from agentmemory.errors import TooManyCalls
from agentmemory.models import CallWindow, Memory, Message, StoredAnswer, Token
from agentmemory.services import purging, rates, tokens, upkeep
from sessions_exec.models import Input
from tests.factories import AgentFactory
from tests.support.clients import Api, of_agent, user

pytestmark = pytest.mark.django_db


# --- how often ---


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The time, which stands still until it is set."""
    now = [6_000_000.0 * rates.MINUTE + 15]
    monkeypatch.setattr("agentmemory.services.rates.time.time", lambda: now[0])
    rates._permits.clear()
    yield now
    rates._permits.clear()


def other_process() -> None:
    """What a process knows is forgotten, as another one never knew it."""
    rates._permits.clear()


def test_a_token_makes_its_calls_of_a_minute_and_then_waits(api: Api, settings: Any, at: list[float]) -> None:
    settings.AGENTMEMORY_RATE_LIMIT = 3
    assert [api.get("/memories").status for _ in range(4)] == [200, 200, 200, 429]
    refused = api.get("/memories")
    assert (refused.status, refused.headers["Retry-After"]) == (429, "45")
    assert refused.body["status"] == 429
    at[0] += 45
    assert api.get("/memories").status == 200


def test_each_token_has_its_own(api: Api, other: Api, settings: Any, at: list[float]) -> None:
    settings.AGENTMEMORY_RATE_LIMIT = 1
    assert [api.get("/memories").status, api.get("/memories").status] == [200, 429]
    assert other.get("/memories").status == 200


@pytest.mark.parametrize("limit", [1, 3, 49, 100, 130])
def test_processes_together_never_pass_the_limit(api: Api, settings: Any, at: list[float], limit: int) -> None:
    settings.AGENTMEMORY_RATE_LIMIT = limit
    token = Token.objects.get().pk
    done = 0
    for _ in range(2 * limit):
        other_process()
        try:
            rates.count(token)
            done += 1
        except TooManyCalls:
            break
    assert done <= limit
    assert CallWindow.objects.get().taken >= limit


def test_one_process_alone_has_all_of_them(api: Api, settings: Any, at: list[float]) -> None:
    settings.AGENTMEMORY_RATE_LIMIT = 130
    token = Token.objects.get().pk
    for _ in range(130):
        rates.count(token)
    with pytest.raises(TooManyCalls):
        rates.count(token)


def test_no_row_is_written_a_call_and_refusals_are_noted_as_they_double(
    api: Api, settings: Any, at: list[float]
) -> None:
    settings.AGENTMEMORY_RATE_LIMIT = 500
    token = Token.objects.get().pk
    with CaptureQueriesContext(connection) as queries:
        for _ in range(500):
            rates.count(token)
        for _ in range(20):
            with pytest.raises(TooManyCalls):
                rates.count(token)
    # The portions, the one that was not there, and the notes of the 1st, 2nd, 4th, 8th and 16th refusal.
    assert len(queries) == rates.PORTIONS + 1 + 5
    assert rates.standings({token: None}) == {token: rates.Standing(limit=500, taken=500, refused=16)}


def test_a_token_may_have_a_limit_of_its_own(api: Api, other: Api, settings: Any, at: list[float]) -> None:
    settings.AGENTMEMORY_RATE_LIMIT = 1
    token = Token.objects.earliest("pk")
    tokens.limit(token_id=token.pk, calls_per_minute=2)
    assert [api.get("/memories").status for _ in range(3)] == [200, 200, 429]
    tokens.limit(token_id=token.pk, calls_per_minute=0)
    assert [api.get("/memories").status for _ in range(3)] == [200, 200, 200]
    assert other.get("/memories").status == 200
    assert other.get("/memories").status == 429
    assert rates.standings({token.pk: 0})[token.pk].limit is None


def test_a_limit_of_its_own_holds_for_answers_that_are_given_again(api: Api, at: list[float]) -> None:
    tokens.limit(token_id=Token.objects.get().pk, calls_per_minute=2)
    api.put("/sessions/s1", {})

    def push() -> int:
        return api.post("/sessions/s1/distill", Idempotency_Key="k").status

    assert [push(), push()] == [202, 429]


def test_without_a_limit_nothing_is_counted(api: Api, settings: Any, at: list[float]) -> None:
    settings.AGENTMEMORY_RATE_LIMIT = 0
    api.get("/memories")
    assert not CallWindow.objects.exists()


def test_minutes_that_are_over_are_forgotten(api: Api, settings: Any, at: list[float]) -> None:
    settings.AGENTMEMORY_RATE_LIMIT = 10
    api.get("/memories")
    at[0] += 3 * rates.MINUTE
    assert rates.forget_old() == 1


def test_refused_calls_are_told_for_a_day(api: Api, settings: Any, at: list[float]) -> None:
    settings.AGENTMEMORY_RATE_LIMIT = 1
    assert [api.get("/memories").status, api.get("/memories").status] == [200, 429]
    at[0] += 3 * rates.MINUTE
    assert rates.forget_old() == 0
    at[0] += 24 * 60 * rates.MINUTE
    assert rates.forget_old() == 1


# --- once ---


def test_a_call_under_a_key_is_done_once_and_answered_again(api: Api) -> None:
    body = {"memories": [{"key": "k", "content": "x"}]}
    first = api.post("/batch", body, Idempotency_Key="a")
    again = api.post("/batch", body, Idempotency_Key="a")
    assert (first.status, first.raw) == (again.status, again.raw)
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.headers["Content-Type"] == first.headers["Content-Type"]
    assert Memory.objects.get().version == 1
    api.post("/batch", body, Idempotency_Key="b")
    assert Memory.objects.get().version == 2


def test_refusals_are_answered_again_too(api: Api) -> None:
    first = api.post("/sessions/none/distill", Idempotency_Key="a")
    api.put("/sessions/none")
    again = api.post("/sessions/none/distill", Idempotency_Key="a")
    assert (first.status, again.status) == (404, 404)
    assert again.headers["Content-Type"] == "application/problem+json"


def test_a_key_that_was_used_for_another_call_is_refused(api: Api, other: Api) -> None:
    api.put("/sessions/s1")
    api.post("/sessions/s1/messages", {"messages": [user("u1")]}, Idempotency_Key="a")
    calls: tuple[tuple[str, dict[str, Any]], ...] = (
        ("/sessions/s1/messages", {"messages": [user("u2")]}),
        ("/sessions/s2/messages", {"messages": [user("u1")]}),
        ("/batch", {"memories": []}),
    )
    for path, body in calls:
        answer = api.post(path, body, Idempotency_Key="a")
        assert answer.status == 422
        assert answer.body["errors"][0]["field"] == "header.Idempotency-Key"
    assert Message.objects.count() == 1
    assert other.post("/batch", {"memories": []}, Idempotency_Key="a").status == 200


@pytest.mark.parametrize("key", ["", "x" * 256, "é", "\x01"])
def test_a_key_of_another_shape_is_refused(api: Api, key: str) -> None:
    assert api.post("/batch", {"memories": []}, Idempotency_Key=key).status == 422


def test_t3_a_bad_token_stays_401(api: Api) -> None:
    stranger = replace(api, token="amt_aaaaaaaa_" + "x" * 43)
    assert stranger.post("/batch", {"memories": []}, Idempotency_Key="a").status == 401
    assert not StoredAnswer.objects.exists()


def test_what_failed_is_undone_and_may_be_tried_again(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from agentmemory.services import memories

    real = memories.put_many

    def broken(**given: Any) -> Any:
        real(**given)
        raise RuntimeError("the disk is full")

    body = {"memories": [{"key": "k", "content": "x"}]}
    with monkeypatch.context() as patch:
        patch.setattr(memories, "put_many", broken)
        assert api.post("/batch", body, Idempotency_Key="a").status == 500
    assert not Memory.objects.exists()
    assert api.post("/batch", body, Idempotency_Key="a").status == 200


def test_after_a_day_a_key_is_free_again(api: Api) -> None:
    api.post("/batch", {"memories": []}, Idempotency_Key="a")
    StoredAnswer.objects.update(created_at=timezone.now() - timedelta(hours=25))
    assert api.post("/batch", {"memories": [{"key": "k", "content": "x"}]}, Idempotency_Key="a").status == 200
    assert StoredAnswer.objects.count() == 1
    StoredAnswer.objects.update(created_at=timezone.now() - timedelta(hours=25))
    upkeep.run()
    assert not StoredAnswer.objects.exists()


def test_a_purge_takes_the_answers_that_are_kept_along(api: Api, whole_space: Api) -> None:
    api.write("k", "Canary.")
    for each in (api, whole_space):
        each.post("/memory-tool", {"command": "view", "path": "/memories/k"}, Idempotency_Key="a")
    elsewhere = of_agent(AgentFactory.create())
    elsewhere.post("/batch", {"memories": []}, Idempotency_Key="a")
    scope = purging.Scope(memory_ids=[Memory.objects.get().pk])
    certificate = purging.purge(scope=scope, author=Author(kind="operator", name="root"), reason="asked to")
    assert certificate.counts["agentmemory_storedanswer"] == 2
    assert StoredAnswer.objects.get().token == Token.objects.latest("pk")


def test_a_body_that_is_too_large_is_413_with_a_key_too(api: Api) -> None:
    assert api.post("/batch", raw=b" " * (9 * 1024 * 1024 + 1), Idempotency_Key="a").status == 413


@pytest.mark.django_db(transaction=True)
def test_of_the_same_call_at_once_one_is_done_and_all_are_answered_alike() -> None:
    api = of_agent(AgentFactory.create())
    api.put("/sessions/s1")
    gate = threading.Barrier(6)

    def send(number: int) -> tuple[int, bytes]:
        try:
            gate.wait(10)
            own = replace(api, client=Client(raise_request_exception=False))
            answer = own.post("/sessions/s1/inputs", {"id": "i1", "prompt": "Go."}, Idempotency_Key="a")
            return answer.status, answer.raw
        finally:
            connections.close_all()

    with ThreadPoolExecutor(6) as pool:
        answers = set(pool.map(send, range(6)))
    assert len(answers) == 1
    assert answers.pop()[0] == 201
    assert Input.objects.count() == 1


# --- not again, and not at full length ---


def test_a_list_that_has_not_changed_is_not_sent_again(api: Api) -> None:
    api.write("k")
    first = api.get("/memories")
    tag = first.headers["ETag"]
    assert tag.startswith('W/"')
    same = api.get("/memories", If_None_Match=tag)
    assert (same.status, same.raw, same.headers["ETag"]) == (304, b"", tag)
    assert api.get("/memories", If_None_Match=f'"x", {tag.removeprefix("W/")}').status == 304
    assert api.get("/memories?limit=1", If_None_Match='"x"').status == 200
    api.write("l")
    assert api.get("/memories", If_None_Match=tag).status == 200


def test_a_memorys_tag_is_its_version_on_the_way_out_and_back(api: Api) -> None:
    api.write("k", "x" * 5_000)
    answer = api.get("/memories/k", Accept_Encoding="gzip")
    assert answer.headers["ETag"] == '"1"'
    assert "Content-Encoding" not in answer.headers
    assert api.get("/memories/k", If_None_Match='"1"').status == 304
    assert api.put("/memories/k", {"content": "y"}, If_Match='"1"').status == 200
    assert api.get("/memories/k", If_None_Match='"1"').status == 200


def test_long_answers_are_compressed_where_the_client_takes_it(api: Api) -> None:
    api.write("k", "x" * 5_000)
    plain = api.get("/memories")
    assert "Accept-Encoding" in plain.headers["Vary"]
    for accepted in ("gzip", "br, GZIP;q=0.5"):
        short = api.get("/memories", Accept_Encoding=accepted)
        assert short.headers["Content-Encoding"] == "gzip"
        assert int(short.headers["Content-Length"]) == len(short.raw) < len(plain.raw)
        assert json.loads(gzip.decompress(short.raw)) == plain.body
        assert short.headers["ETag"] == plain.headers["ETag"]
    for accepted in ("", "br", "gzip;q=0", "identity"):
        assert "Content-Encoding" not in api.get("/memories", Accept_Encoding=accepted).headers
    assert "Content-Encoding" not in api.get("/memories/none", Accept_Encoding="gzip").headers


def test_errors_and_writes_have_no_tag_of_what_they_say(api: Api) -> None:
    assert "ETag" not in api.get("/memories/none").headers
    assert "ETag" not in api.post("/batch", {"memories": []}).headers
