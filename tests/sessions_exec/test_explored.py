"""Every course of events of a small session keeps every promise, and the services go the same ways on PostgreSQL."""

from __future__ import annotations

import os
from random import Random

import pytest

from sessions_exec.services import recovery
from tests.sessions_exec import explorer, world
from tests.sessions_exec.mutants import MUTANTS, NOTICED, Mutant
from tests.sessions_exec.retraced import retrace
from tests.sessions_exec.world import Bounds

Patch = pytest.MonkeyPatch
# Steps further than in the short form.
FURTHER = 2 if "ROUNDS" in os.environ else 0
ALL = Bounds(depth=6 + FURTHER)
SLICES = {
    "everything": ALL,
    "holders": Bounds(depth=8 + FURTHER, without=frozenset({"admit", "interrupt"})),
    "inbox": Bounds(depth=7 + FURTHER, crashes=0, answers=0, without=frozenset({"dispatch", "say"})),
    "open writes": Bounds(depth=9 + FURTHER, open_writes=True, without=frozenset({"admit", "interrupt", "speak"})),
}
PATHS = 10


@pytest.mark.parametrize("name", SLICES)
def test_s1_to_s10_hold_in_every_course_of_events(name: str) -> None:
    found = explorer.explore(SLICES[name])
    assert not found.broken, found.trace
    refused = {act for act, accepted in found.first if not accepted}
    assert refused >= {"acquire", "renew", "promote", "release", "scan"}
    assert any(state.told for state in found.came_by)
    assert any(state.uncertain for state in found.came_by) or name in {"inbox"}


def test_a_guarded_write_without_its_lock_comes_after_the_take_over(monkeypatch: Patch) -> None:
    monkeypatch.setattr(world, "locked", lambda state: False)
    assert explorer.explore(SLICES["open writes"]).broken == "S3: a guarded write came after the take-over"


@pytest.mark.django_db
def test_the_services_go_as_the_small_world_does(monkeypatch: Patch) -> None:
    """The shortest way to each kind of step, taken and refused; and some of the longest ways, by chance."""
    monkeypatch.setattr(recovery, "MOST_RECOVERIES", world.MOST_RECOVERIES)
    found = explorer.explore(ALL)
    for step in found.first.values():
        retrace(found.way_over(step))
    last = list(found.came_by)[-len(found.came_by) // 2 :]
    for state in Random(0).sample(last, PATHS):
        retrace(found.way_to(state))


@pytest.mark.django_db
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_rule_is_found_and_its_trace_shows_it_in_the_services(mutant: Mutant, monkeypatch: Patch) -> None:
    """Found in the small world; then the services, which are sound, go that way as they should; then they are broken,
    and the machine sees it on that very way."""
    monkeypatch.setattr(recovery, "MOST_RECOVERIES", world.MOST_RECOVERIES)
    with monkeypatch.context() as broken:
        mutant.world(broken)
        found = explorer.explore(ALL)
    assert found.broken, "nobody notices"
    trace = explorer.walked([act for _, act in found.trace])
    retrace(trace)
    mutant.services(monkeypatch)
    with pytest.raises(NOTICED):
        retrace(trace)
