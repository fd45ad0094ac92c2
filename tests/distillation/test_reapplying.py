"""A pass's stored answer applied once more (D25)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentmemory.authorship import Author
from agentmemory.callers import Caller
from agentmemory.errors import Invalid
from agentmemory.models import Activity, Agent, Memory, MemoryEvent, MemorySource
from agentmemory.services import curation, memories, removals
from distillation.models import DistillationPass
from distillation.services import distilling, reapplying
from tests.distillation.conftest import Tell, cursor_of
from tests.support import model_server
from tests.support.model_server import ModelServer

pytestmark = pytest.mark.django_db
WHO = {"operator": "olga", "reason": "somebody took it out by mistake"}
OLGA = Author(kind="operator", name="olga")


def item(key: str, content: str, seq: int) -> dict[str, Any]:
    return {"key": key, "content": content, "tags": [], "sources": [seq], "quote": ""}


@pytest.fixture
def row(server: ModelServer, tell: Tell) -> DistillationPass:
    session = tell("The port is 8080.", "Deploys are on Tuesday.")
    found = [item("port", "The port is 8080.", 1), item("deploys", "Deploys are on Tuesday.", 2)]
    server.script(model_server.memories([*found, item("nowhere", "It cites a message that is not there.", 99)]))
    assert distilling.run_cursor(cursor_id=cursor_of(session).pk).state == "applied"
    return DistillationPass.objects.get()


def books() -> tuple[Any, ...]:
    """All that a pass writes."""
    return (
        list(Memory.objects.order_by("key").values("pk", "key", "content", "version", "withdrawn_at")),
        list(MemorySource.objects.order_by("pk").values("memory", "uid", "version", "pass_id")),
        MemoryEvent.objects.count(),
        list(DistillationPass.objects.values("written", "refused", "outcome", "input_tokens")),
    )


def actions(planned: list[reapplying.Planned]) -> dict[str, str]:
    return {each.key: each.action for each in planned}


def test_d25_applying_the_stored_answer_again_gives_the_same_rows(server: ModelServer, row: DistillationPass) -> None:
    before, position = books(), cursor_of(row.session).position  # type: ignore[arg-type]

    for _ in range(2):
        planned = reapplying.carry_out(pass_id=row.pk, **WHO)
        assert actions(planned) == {"port": "known", "deploys": "known", "nowhere": "refused"}
        assert books() == before
    assert cursor_of(row.session).position == position  # type: ignore[arg-type]
    assert len(server.requests) == 1


def test_d25_a_plan_tells_what_would_be_done_and_does_nothing(row: DistillationPass) -> None:
    port = Memory.objects.get(key="port")
    curation.remove(memory_id=port.pk, author=OLGA, reason="oops")
    before = books()

    planned = reapplying.plan(pass_id=row.pk)

    assert actions(planned) == {"port": "created", "deploys": "known", "nowhere": "refused"}
    assert books() == before
    assert not Activity.objects.filter(act="apply again").exists()

    assert actions(reapplying.carry_out(pass_id=row.pk, **WHO)) == actions(planned)
    assert Memory.objects.kept().get(key="port").content == "The port is 8080."
    found = Activity.objects.get(act="apply again")
    assert (found.who, found.detail) == ("operator:olga", {"created": 1, "known": 1, "refused": 1})


def test_d25_a_plan_says_what_a_later_pass_would_lose(server: ModelServer, row: DistillationPass, tell: Tell) -> None:
    session = tell("The port is 9090 now.")
    server.script(model_server.memories([item("port", "The port is 9090.", session.last_seq - 1)]))
    distilling.run_cursor(cursor_id=cursor_of(session).pk)

    (port,) = [each for each in reapplying.plan(pass_id=row.pk) if each.key == "port"]

    assert (port.action, port.before, port.after) == ("updated", "The port is 9090.", "The port is 8080.")
    assert "version 2" in port.reason


def test_d25_what_is_curated_edited_or_withdrawn_by_a_person_is_left_alone(row: DistillationPass, agent: Agent) -> None:
    caller = Caller(space=agent.space, agent=agent)
    memories.put(caller=caller, draft=memories.Draft(key="port", content="The port is 443."))
    edited = Memory.objects.get(key="port", origin="distilled")
    curation.edit(memory_id=edited.pk, author=OLGA, reason="clearer", content="It is port 8081.")
    curation.withdraw(memory_id=Memory.objects.get(key="deploys").pk, author=OLGA, reason="it is wrong")
    before = books()

    planned = reapplying.carry_out(pass_id=row.pk, **WHO)

    assert set(actions(planned).values()) == {"refused"}
    assert books() == before
    assert "operator:olga edited this memory by hand" in " ".join(each.reason for each in planned)


def test_d23_what_was_taken_back_since_does_not_return(row: DistillationPass) -> None:
    removals.retract(session=row.session, uids=["u1"], reason="said by mistake")  # type: ignore[arg-type]

    assert actions(reapplying.carry_out(pass_id=row.pk, **WHO))["port"] == "refused"
    assert Memory.objects.get(key="port").withdrawn_at is not None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"outcome": "failed"}, "ended well"),
        ({"answer": ""}, "no longer kept"),
        ({"session": None, "cursor": None}, "session is gone"),
        ({"answer": json.dumps({"other": 1})}, "cannot be read"),
    ],
)
def test_what_cannot_be_applied_again_says_why(row: DistillationPass, changes: dict[str, Any], says: str) -> None:
    DistillationPass.objects.filter(pk=row.pk).update(**changes)

    with pytest.raises(Invalid, match=says):
        reapplying.plan(pass_id=row.pk)
    with pytest.raises(Invalid, match=says):
        reapplying.carry_out(pass_id=row.pk, **WHO)
