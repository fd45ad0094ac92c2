"""Two merges at once, and a write at the moment of a link (M9): each with the guard taken out, which must fail."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction

from agentmemory.authorship import Author
from agentmemory.callers import Caller
from agentmemory.errors import AgentMemoryError
from agentmemory.models import Agent, Consolidation, Memory
from agentmemory.services import consolidation, consolidation_plans, memories, merging
from tests.factories import AgentFactory, MemoryFactory

pytestmark = pytest.mark.django_db(transaction=True)
OPERATOR = Author(kind="operator", name="olga")
SAYS = "Releases go out on Tuesdays after the tests have passed."
PATIENCE = 0.7
"""Seconds to wait for another who, if all is well, waits for us."""


@pytest.fixture
def agent() -> Agent:
    return AgentFactory.create()


def distilled(agent: Agent, key: str, **values: Any) -> Memory:
    values = {"owner": agent, "space": agent.space, "origin": "distilled", "content": SAYS, **values}
    return MemoryFactory.create(key=key, **values)


def at_once(*works: Callable[[], Any]) -> list[Any]:
    """Do all of it in threads with connections of their own; what each returned or raised."""
    done: list[Any] = [None] * len(works)

    def do(at: int) -> None:
        try:
            done[at] = works[at]()
        except AgentMemoryError as error:
            done[at] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=do, args=(at,)) for at in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return done


def meeting(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let two meet after they looked and before they write, unless one of them has to wait for the other."""
    barrier, real = threading.Barrier(2), getattr(merging, name)

    def meet(*rows: Memory) -> None:
        real(*rows)
        with contextlib.suppress(threading.BrokenBarrierError):
            barrier.wait(PATIENCE)

    monkeypatch.setattr(merging, name, meet)


def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked_at(pks: Any, expected: Any = None, **_: Any) -> dict[Any, Memory]:
        return {row.pk: row for row in Memory.objects.filter(pk__in=pks)}

    monkeypatch.setattr(merging, "_locked", looked_at)


def merge_both_ways(agent: Agent) -> list[Any]:
    first, second = distilled(agent, "a"), distilled(agent, "b")

    def work(memory: Memory, into: Memory) -> Callable[[], Any]:
        return lambda: merging.merge(memory_id=memory.pk, into_id=into.pk, author=OPERATOR, why="w")

    return at_once(work(first, second), work(second, first))


def test_m9_of_two_opposite_merges_at_once_one_is_done(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    meeting(monkeypatch, "_check_merge")
    results = merge_both_ways(agent)
    assert sorted(isinstance(each, Consolidation) for each in results) == [False, True]
    assert Memory.objects.filter(merged_into=None).count() == 1


def test_m9_without_the_locks_two_opposite_merges_lose_both(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    without_locks(monkeypatch)
    meeting(monkeypatch, "_check_merge")
    merge_both_ways(agent)
    assert Memory.objects.filter(merged_into=None).count() == 0, "each vanished into the other"


def run_twice(agent: Agent) -> list[consolidation.Report]:
    distilled(agent, "a", tags=["x"])
    distilled(agent, "b", tags=["y"])
    plan = consolidation_plans.plan()
    return at_once(lambda: consolidation.run(plan=plan), lambda: consolidation.run(plan=plan))


def test_m9_two_consolidations_at_once_merge_once(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    meeting(monkeypatch, "_check_merge")
    reports = run_twice(agent)
    assert sorted((report.merge, report.skipped) for report in reports) == [(0, 1), (1, 0)]
    assert Consolidation.objects.count() == 1


def test_m9_without_the_locks_two_consolidations_merge_twice(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    without_locks(monkeypatch)
    meeting(monkeypatch, "_check_merge")
    assert sum(report.merge for report in run_twice(agent)) == 2
    assert Consolidation.objects.count() == 2


def link_while_writing(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> Memory:
    """Somebody writes the curated memory after the link looked at it, and before the link is written."""
    repetition = distilled(agent, "releases")
    curated = distilled(agent, "release-day", origin="curated")
    looked, written, real = threading.Event(), threading.Event(), merging._check_link

    def look(*rows: Memory) -> None:
        real(*rows)
        looked.set()
        written.wait(PATIENCE)

    def write() -> None:
        looked.wait(5)
        draft = memories.Draft(key="release-day", content="Releases are on Mondays now.")
        memories.put(caller=Caller(space=agent.space, agent=agent), draft=draft)
        written.set()

    monkeypatch.setattr(merging, "_check_link", look)
    versions = {curated.pk: 1, repetition.pk: 1}
    _, put = at_once(
        lambda: merging.link(
            memory_id=repetition.pk, curated_id=curated.pk, author=OPERATOR, why="w", expected=versions
        ),
        write,
    )
    assert put is None
    repetition.refresh_from_db()
    return repetition


def test_m9_a_write_at_the_moment_of_a_link_ends_it(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    assert link_while_writing(agent, monkeypatch).repeats_id is None


def test_m9_without_the_locks_a_link_outlives_what_it_was_made_for(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_locks(monkeypatch)
    assert link_while_writing(agent, monkeypatch).repeats_id is not None


def test_m9_a_curated_write_and_a_merge_of_its_key_do_not_touch_each_other(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = distilled(agent, "a"), distilled(agent, "b")
    meeting(monkeypatch, "_check_merge")
    caller = Caller(space=agent.space, agent=agent)
    draft = memories.Draft(key="a", content="Written on purpose.")
    merged, written = at_once(
        lambda: merging.merge(memory_id=first.pk, into_id=second.pk, author=OPERATOR, why="w"),
        lambda: memories.put(caller=caller, draft=draft),
    )
    assert isinstance(merged, Consolidation)
    assert written.created
    assert memories.get(caller=caller, key="a").content == "Written on purpose."
    assert memories.get(caller=caller, key="a", origin="distilled").pk == second.pk


def test_m9_a_source_may_be_added_while_its_memory_is_being_merged(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock of a merge keeps no pass waiting that finds the memory known: two such waits could meet."""
    first, second = distilled(agent, "a"), distilled(agent, "b")
    with transaction.atomic():
        merging._locked([first.pk, second.pk])

        def cite() -> str:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SET LOCAL lock_timeout = '3s'")
                cursor.execute("SELECT FROM agentmemory_memory WHERE id = %s FOR KEY SHARE", [first.pk])
            return "cited"

        assert at_once(cite) == ["cited"]
