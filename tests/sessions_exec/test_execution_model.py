"""The services do what a model of their rules says, and the model notices every rule that is broken on purpose."""

from __future__ import annotations

import os

import pytest
from django.db import transaction
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from sessions_exec.services import recovery
from tests.sessions_exec.execution_model import Machine, walk
from tests.sessions_exec.mutants import MUTANTS, NOTICED, Mutant

pytestmark = pytest.mark.django_db

Patch = pytest.MonkeyPatch
LONG = "ROUNDS" in os.environ
CAREFUL = settings(
    max_examples=100 if LONG else 5,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
WALKS, STEPS = 100 if LONG else 4, 60
# Within so many walks each broken rule is noticed by chance alone, wherever chance begins; the short form looks for the
# one that is the hardest to find. (Each is shown along its own trace in `test_explored`.)
SEARCHES = [0, 1_000, 2_000] if LONG else [0]
MOST_WALKS = 25
SOUGHT = [mutant for mutant in MUTANTS if LONG or mutant.name == "older_answers"]


@pytest.fixture(autouse=True)
def few_recoveries(monkeypatch: Patch) -> None:
    """So few that a run of the machine comes to the last of them."""
    monkeypatch.setattr(recovery, "MOST_RECOVERIES", 3)


@pytest.mark.slow
def test_s1_to_s9_hold_over_any_course_of_events() -> None:
    run_state_machine_as_test(Machine, settings=CAREFUL)


@pytest.mark.slow
def test_s1_to_s9_hold_over_long_courses_that_come_to_everything() -> None:
    done = [walk(seed, steps=STEPS) for seed in range(WALKS)]
    inputs = [one for machine in done for one in machine.model.inputs]
    assert sum(len(machine.model.recovered) for machine in done) > 2 * WALKS
    assert sum(len(machine.tokens) for machine in done) > 3 * WALKS
    assert {(one.kind, one.state) for one in inputs} >= {
        (kind, state) for kind in ("prompt", "continuation") for state in ("pending", "promoted", "cancelled")
    }
    assert any(count >= 3 for machine in done for count in machine.model.recoveries.values())
    assert all(machine.wakes for machine in done)


@pytest.mark.slow
@pytest.mark.parametrize("first", SEARCHES)
@pytest.mark.parametrize("mutant", SOUGHT, ids=lambda mutant: mutant.name)
def test_a_broken_rule_is_noticed_without_being_told_where_to_look(
    mutant: Mutant, first: int, monkeypatch: Patch
) -> None:
    mutant.services(monkeypatch)
    with pytest.raises(NOTICED):
        search(first)


def search(first: int) -> None:
    for seed in range(first, first + MOST_WALKS):
        with transaction.atomic():
            walk(seed, steps=STEPS)
