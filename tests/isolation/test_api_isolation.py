"""T2, M4: whoever has no business with a row gets nothing of it, through any call there is.

Each call of the OpenAPI document has its case here; a new call without one fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import transaction
from django.test import Client

from agentmemory.models import Memory
from agentmemory.services import spaces
from tests.isolation.strangers import CANARY, FOREIGN, INPUT, KEY, NOT_VALID, SESSION, UID, foreign_space, state
from tests.support.clients import Api, of_space, user

HELD = {"id": "0b0d3b1e-8c1f-4a52-9f8e-0b7f3f1c2d4e", "epoch": 1}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A call that names what is not its caller's. `answers` are the statuses that tell nothing."""

    path: str
    body: Any = None
    answers: frozenset[int] = frozenset({404})


NOTHING_FOUND = frozenset({200})
OF_ITS_OWN = frozenset({201, 422})
"""It makes a row of its caller's own (422: a space token names no owner)."""

CASES: dict[tuple[str, str], Case] = {
    ("put", "/memories/{key}"): Case(
        path=f"/memories/{KEY}", body={"content": "x", "scope": "mine"}, answers=OF_ITS_OWN
    ),
    ("get", "/memories/{key}"): Case(path=f"/memories/{KEY}"),
    ("delete", "/memories/{key}"): Case(path=f"/memories/{KEY}", answers=NOTHING_FOUND),
    ("get", "/memories"): Case(path="/memories?limit=500", answers=NOTHING_FOUND),
    ("post", "/memory-tool"): Case(
        path="/memory-tool",
        body={"command": "str_replace", "path": f"/memories/{KEY}", "old_str": "fox", "new_str": "x"},
        answers=NOTHING_FOUND,
    ),
    ("get", "/search"): Case(path=f"/search?q={CANARY}&limit=50&explain=true", answers=NOTHING_FOUND),
    ("get", "/transcripts/search"): Case(
        path=f"/transcripts/search?q={CANARY}&limit=50&neighbours=10", answers=frozenset({200, 422})
    ),
    ("get", "/context"): Case(path="/context?q=fox", answers=NOTHING_FOUND),
    ("get", "/history/{id}"): Case(path="/history/{memory}"),
    ("post", "/batch"): Case(
        path="/batch", body={"memories": [{"key": KEY, "content": "x", "scope": "mine"}]}, answers=NOTHING_FOUND
    ),
    ("put", "/sessions/{id}"): Case(path=f"/sessions/{SESSION}", answers=OF_ITS_OWN),
    ("get", "/sessions"): Case(path="/sessions?limit=500", answers=NOTHING_FOUND),
    ("get", "/sessions/{id}"): Case(path=f"/sessions/{SESSION}"),
    ("delete", "/sessions/{id}"): Case(path=f"/sessions/{SESSION}"),
    ("post", "/sessions/{id}/messages"): Case(
        path=f"/sessions/{SESSION}/messages", body={"messages": [user(UID, "other")]}
    ),
    ("get", "/sessions/{id}/messages"): Case(path=f"/sessions/{SESSION}/messages"),
    ("patch", "/sessions/{id}/messages/{uid}"): Case(
        path=f"/sessions/{SESSION}/messages/{UID}", body={"delivery": "failed"}
    ),
    ("post", "/sessions/{id}/retractions"): Case(path=f"/sessions/{SESSION}/retractions", body={"uids": [UID]}),
    ("post", "/sessions/{id}/rewind"): Case(path=f"/sessions/{SESSION}/rewind", body={"after_uid": UID}),
    ("post", "/sessions/{id}/inputs"): Case(path=f"/sessions/{SESSION}/inputs", body={"id": "i2", "prompt": "x"}),
    ("get", "/sessions/{id}/inputs"): Case(path=f"/sessions/{SESSION}/inputs"),
    ("patch", "/sessions/{id}/inputs/{input}"): Case(
        path=f"/sessions/{SESSION}/inputs/{INPUT}", body={"delivery": "queue"}
    ),
    ("delete", "/sessions/{id}/inputs/{input}"): Case(path=f"/sessions/{SESSION}/inputs/{INPUT}"),
    ("post", "/sessions/{id}/execution"): Case(path=f"/sessions/{SESSION}/execution", body={"owner": "x"}),
    ("patch", "/sessions/{id}/execution"): Case(path=f"/sessions/{SESSION}/execution", body=HELD),
    ("delete", "/sessions/{id}/execution"): Case(path=f"/sessions/{SESSION}/execution", body=HELD),
    ("post", "/sessions/{id}/execution/promote"): Case(
        path=f"/sessions/{SESSION}/execution/promote", body={**HELD, "boundary": "idle"}
    ),
    ("post", "/sessions/{id}/interrupt"): Case(path=f"/sessions/{SESSION}/interrupt"),
    ("get", "/sessions/{id}/events"): Case(path=f"/sessions/{SESSION}/events?limit=500"),
    ("post", "/sessions/{id}/distill"): Case(path=f"/sessions/{SESSION}/distill"),
    ("get", "/distillation"): Case(path="/distillation?limit=500", answers=NOTHING_FOUND),
}


def test_every_call_has_a_case(client: Client) -> None:
    document = client.get("/api/v1/openapi.json").json()
    calls = {
        (method, path.removeprefix("/api/v1")) for path, methods in document["paths"].items() for method in methods
    }
    assert calls == set(CASES)


def call(api: Api, method: str, case: Case) -> Any:
    memory = Memory.objects.get(key=KEY, content__contains=CANARY)
    return api.call(method.upper(), case.path.replace("{memory}", str(memory.pk)), case.body)


def without_echo(text: str) -> str:
    """What an answer says, without the names that the call itself brought along."""
    for name in (KEY, SESSION, UID, INPUT):
        text = text.replace(name, "")
    return text


def on_each_call(victim: Api, subtests: pytest.Subtests, check: Callable[[str, Case], None]) -> None:
    """Check every call there is, on the victim as it is at first: what a call makes is taken back after it."""
    before = state(victim)
    for (method, path), case in CASES.items():
        with subtests.test(f"{method} {path}"), transaction.atomic():
            check(method, case)
            assert state(victim) == before
            transaction.set_rollback(True)


def asking_for_all(case: Case) -> Iterator[Case]:
    """The same call with each word that widens what is asked for."""
    for query in ("scope=all", "owner=ada", "scope=mine&owner=ada"):
        yield Case(path=f"{case.path}{'&' if '?' in case.path else '?'}{query}", body=case.body)


@pytest.mark.parametrize("stranger", FOREIGN)
def test_m4_a_foreign_token_learns_and_changes_nothing(
    victim: Api, stranger: Callable[[Api], Api], subtests: pytest.Subtests
) -> None:
    foreign = stranger(victim)

    def check(method: str, case: Case) -> None:
        answer = call(foreign, method, case)
        assert answer.status in case.answers, answer
        assert CANARY not in without_echo(answer.text)
        assert "fox" not in answer.text
        if method == "get" and case.answers == NOTHING_FOUND:
            assert answer.body.get("items", []) == []
            assert answer.body.get("core", []) == []

    on_each_call(victim, subtests, check)


@pytest.mark.parametrize("stranger", NOT_VALID)
def test_t3_a_token_that_is_not_valid_gets_401_everywhere(
    victim: Api, stranger: Callable[[Api], Api], subtests: pytest.Subtests
) -> None:
    invalid = stranger(victim)

    def check(method: str, case: Case) -> None:
        answer = call(invalid, method, case)
        assert answer.status == 401
        assert CANARY not in answer.text
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")

    on_each_call(victim, subtests, check)


@pytest.mark.parametrize("named", list(CASES), ids=lambda named: " ".join(named))
def test_the_victim_itself_would_be_answered(victim: Api, named: tuple[str, str]) -> None:
    """Without this, a case whose path is wrong would find nothing for anybody."""
    answer = call(victim, named[0], CASES[named])
    assert answer.status in {200, 201, 202, 409}, answer


def test_a_token_of_another_space_gains_nothing_by_asking_for_all(victim: Api, subtests: pytest.Subtests) -> None:
    stranger = foreign_space(victim)

    def check(method: str, case: Case) -> None:
        for asked in asking_for_all(case):
            answer = call(stranger, method, asked)
            assert answer.status in {200, 201, 404, 409, 422}, answer
            assert CANARY not in without_echo(answer.text)
            assert "fox" not in answer.text

    on_each_call(victim, subtests, check)


def test_t4_what_an_archived_agent_has_is_hidden_from_its_space_too(victim: Api, subtests: pytest.Subtests) -> None:
    assert victim.agent is not None
    stranger = of_space(victim.agent.space)
    spaces.archive_agent(agent_id=victim.agent.pk)

    def check(method: str, case: Case) -> None:
        for asked in asking_for_all(case):
            answer = call(stranger, method, asked)
            assert answer.status in {200, 404, 422}, answer
            assert CANARY not in without_echo(answer.text)
            assert "fox" not in answer.text

    on_each_call(victim, subtests, check)
