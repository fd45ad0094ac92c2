"""Passes and reconciliation meet memories that were merged (M9, D9, D23)."""

from __future__ import annotations

import pytest

from agentmemory.authorship import Author
from agentmemory.models import Agent, Memory, MemorySource, Session
from agentmemory.services import curation, merging, removals
from distillation.services import distilling
from tests.distillation.conftest import Tell, cursor_of
from tests.support import model_server
from tests.support.model_server import ModelServer

pytestmark = pytest.mark.django_db
OPERATOR = Author(kind="operator", name="olga")


def remembered(server: ModelServer, session: Session, *items: tuple[str, str, list[int]]) -> None:
    answer = [{"key": key, "content": content, "sources": sources} for key, content, sources in items]
    server.script(model_server.memories(answer))
    assert distilling.run_cursor(cursor_id=cursor_of(session).pk).state == "applied"


@pytest.fixture
def merged(server: ModelServer, tell: Tell) -> tuple[Session, Memory, Memory]:
    """Two memories, each of a message of its own (1 and 2), the second merged into the first."""
    session = tell("The port is 8080.", "Deploys are on Tuesday.")
    remembered(server, session, ("port", "The port is 8080.", [1]), ("deploys", "Deploys are on Tuesday.", [2]))
    survivor, gone = Memory.objects.get(key="port"), Memory.objects.get(key="deploys")
    merging.merge(memory_id=gone.pk, into_id=survivor.pk, author=OPERATOR, why="w", reason="r")
    return session, survivor, gone


def states() -> dict[str, tuple[str, bool]]:
    """Of each memory what it says and whether it stands withdrawn."""
    return {row.key: (row.content, row.withdrawn_at is not None) for row in Memory.objects.all()}


def test_m9_what_a_pass_writes_under_a_vanished_key_goes_to_the_survivor(
    server: ModelServer, tell: Tell, merged: tuple[Session, Memory, Memory]
) -> None:
    _, survivor, gone = merged
    session = tell("Everything moved to port 9090 and Wednesdays.")
    remembered(server, session, ("deploys", "Everything moved to port 9090 and Wednesdays.", [4]))
    survivor.refresh_from_db()
    gone.refresh_from_db()
    assert (survivor.content, gone.content) == (
        "Everything moved to port 9090 and Wednesdays.",
        "Deploys are on Tuesday.",
    )
    assert MemorySource.objects.filter(memory=survivor, version=survivor.version).get().seq == 4


def test_m9_a_vanished_key_whose_survivor_was_deleted_stands_by_itself_when_a_pass_writes_it(
    server: ModelServer, tell: Tell, merged: tuple[Session, Memory, Memory]
) -> None:
    _, survivor, gone = merged
    curation.remove(memory_id=survivor.pk, author=OPERATOR, reason="wrong")
    session = tell("Deploys moved to Fridays.")
    remembered(server, session, ("deploys", "Deploys moved to Fridays.", [4]))
    gone.refresh_from_db()
    assert (gone.content, gone.merged_into_id) == ("Deploys moved to Fridays.", None)


def test_d23_a_survivor_stands_on_the_sources_that_came_with_a_merge(merged: tuple[Session, Memory, Memory]) -> None:
    session, *_ = merged
    removals.retract(session=session, uids=["u1"])
    assert states() == {"port": ("The port is 8080.", False), "deploys": ("Deploys are on Tuesday.", False)}
    removals.retract(session=session, uids=["u2"])
    assert {key: gone for key, (_, gone) in states().items()} == {"port": True, "deploys": True}


def test_d23_a_merged_memory_is_withdrawn_with_its_own_sources(merged: tuple[Session, Memory, Memory]) -> None:
    session, _, gone = merged
    removals.retract(session=session, uids=["u2"])
    assert states() == {"port": ("The port is 8080.", False), "deploys": ("Deploys are on Tuesday.", True)}
    merging.unmerge(memory_id=gone.pk, author=OPERATOR, reason="r")
    assert states()["deploys"] == ("Deploys are on Tuesday.", True)


def test_d23_undoing_a_merge_withdraws_a_survivor_that_nothing_else_supports(
    merged: tuple[Session, Memory, Memory],
) -> None:
    session, _, gone = merged
    removals.retract(session=session, uids=["u1"])
    merging.unmerge(memory_id=gone.pk, author=OPERATOR, reason="r")
    assert states() == {"port": ("The port is 8080.", True), "deploys": ("Deploys are on Tuesday.", False)}


def test_d9_what_repeats_the_survivor_is_known_and_stays_its_own_when_the_merge_is_undone(
    server: ModelServer, tell: Tell, merged: tuple[Session, Memory, Memory], agent: Agent
) -> None:
    _, survivor, gone = merged
    session = tell("The port is 8080.")
    remembered(server, session, ("listening", "The port is 8080", [4]))
    assert not Memory.objects.filter(key="listening").exists()
    merging.unmerge(memory_id=gone.pk, author=OPERATOR, reason="r")
    assert sorted(MemorySource.objects.filter(memory=survivor).values_list("seq", flat=True)) == [1, 4]
