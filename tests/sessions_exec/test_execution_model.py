"""The services do what a model of their rules says, and the model notices every rule that is broken on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import DatabaseError
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from agentmemory.models import Session
from agentmemory.services import outcomes
from sessions_exec import leases
from sessions_exec.errors import LeaseLost, SessionsExecError
from sessions_exec.models import Execution, Input
from sessions_exec.querysets import ExecutionQuerySet, InputQuerySet
from sessions_exec.services import executions, inbox, recovery
from tests.sessions_exec.execution_model import Machine, walk

pytestmark = pytest.mark.django_db

Patch = pytest.MonkeyPatch
CAREFUL = settings(
    max_examples=10,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
WALKS, STEPS = 20, 60


@pytest.fixture(autouse=True)
def few_recoveries(monkeypatch: Patch) -> None:
    """So few that a run of the machine comes to the last of them."""
    monkeypatch.setattr(recovery, "MOST_RECOVERIES", 3)


@pytest.mark.slow
def test_s1_to_s9_hold_over_any_course_of_events() -> None:
    run_state_machine_as_test(Machine, settings=CAREFUL)


def walks() -> list[Machine]:
    return [walk(seed, steps=STEPS) for seed in range(WALKS)]


@pytest.mark.slow
def test_s1_to_s9_hold_over_long_courses_that_come_to_everything() -> None:
    done = walks()
    inputs = [one for machine in done for one in machine.model.inputs]
    assert sum(len(machine.model.recovered) for machine in done) > 30
    assert sum(len(machine.tokens) for machine in done) > 70
    assert {(one.kind, one.state) for one in inputs} >= {
        (kind, state) for kind in ("prompt", "continuation") for state in ("pending", "promoted", "cancelled")
    }
    assert any(count >= 3 for machine in done for count in machine.model.recoveries.values())
    assert all(machine.wakes for machine in done)


def _expiry(patch: Patch) -> None:
    patch.setattr(ExecutionQuerySet, "live", lambda self: self.filter(expires_at__isnull=False))


def _fence_expiry(patch: Patch) -> None:
    def fence(self: Any, pk: Any, *, epoch: int) -> None:
        if not self.filter(pk=pk, epoch=epoch, expires_at__isnull=False).exists():
            raise LeaseLost

    patch.setattr(ExecutionQuerySet, "fence", fence)


def _epoch(patch: Patch) -> None:
    def hold(self: Any, pk: Any, **_: Any) -> None:
        if not self.filter(pk=pk).live().exists():
            raise LeaseLost

    patch.setattr(ExecutionQuerySet, "hold", hold)


def _silent_take_over(patch: Patch) -> None:
    patch.setattr(ExecutionQuerySet, "free", leases.LeaseQuerySet.free)
    patch.setattr(executions, "_recover_or_refuse", lambda session: None)


def _epoch_stands_still(patch: Patch) -> None:
    real = ExecutionQuerySet.acquire

    def acquire(self: Any, pk: Any, **given: Any) -> int:
        epoch = real(self, pk, **given)
        self.filter(pk=pk, epoch__gt=1).update(epoch=1)
        return epoch

    patch.setattr(ExecutionQuerySet, "acquire", acquire)


def _older_answers(patch: Patch) -> None:
    patch.setattr(recovery, "_needs_nothing", lambda session, execution: execution.phase == "safe")


def _any_answer(patch: Patch) -> None:
    patch.setattr(recovery, "_own", lambda session, execution: outcomes.newest_assistant(session))


def _everything_is_safe(patch: Patch) -> None:
    patch.setattr(recovery, "_needs_nothing", lambda session, execution: True)


def _no_cap(patch: Patch) -> None:
    patch.setattr(recovery, "_give_up", lambda session: None)


def _release_without_a_look(patch: Patch) -> None:
    patch.setattr(inbox, "wake", lambda session: None)


def _interrupt_keeps_wishes(patch: Patch) -> None:
    patch.setattr(InputQuerySet, "wanted", lambda self: self.pending().none())


def _interrupt_drops_inputs(patch: Patch) -> None:
    real = executions.interrupt

    def interrupt(*, session: Session) -> bool:
        for row in Input.objects.pending().filter(session=session):
            inbox.cancel(session=session, uid=row.uid)
        return real(session=session)

    patch.setattr(executions, "interrupt", interrupt)


def _late_continuation(patch: Patch) -> None:
    def chosen(session: Session, boundary: str) -> list[Input]:
        rows = list(inbox.pending(session=session))
        steers = [row for row in rows if row.delivery == "steer"]
        return steers if steers or boundary == "step" else rows[:1]

    patch.setattr(inbox, "_chosen", chosen)


def _all_queued_at_once(patch: Patch) -> None:
    patch.setattr(inbox, "_chosen", lambda session, boundary: list(inbox.pending(session=session)))


def _any_retry(patch: Patch) -> None:
    patch.setattr(inbox, "_again", lambda session, stored, **_: stored)


def _continuation_in_spite_of_an_interrupt(patch: Patch) -> None:
    real = inbox.admit_continuation
    patch.setattr(inbox, "admit_continuation", lambda **given: real(**{**given, "resume": True}))


def _phase_is_not_kept(patch: Patch) -> None:
    patch.setattr(executions, "_move", lambda session, before, changes: None)


def _recovery_keeps_the_lease(patch: Patch) -> None:
    patch.setattr(recovery, "_close", lambda execution: Execution.objects.filter(pk=execution.pk).update(phase="safe"))


MUTANTS: list[Callable[[Patch], None]] = [
    _expiry,
    _fence_expiry,
    _epoch,
    _silent_take_over,
    _epoch_stands_still,
    _older_answers,
    _any_answer,
    _everything_is_safe,
    _no_cap,
    _release_without_a_look,
    _interrupt_keeps_wishes,
    _interrupt_drops_inputs,
    _late_continuation,
    _all_queued_at_once,
    _any_retry,
    _continuation_in_spite_of_an_interrupt,
    _phase_is_not_kept,
    _recovery_keeps_the_lease,
]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__.strip("_"))
def test_a_broken_rule_is_noticed(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutant(monkeypatch)
    # An assertion of the model, or what the broken services themselves ran into.
    with pytest.raises((AssertionError, SessionsExecError, DatabaseError)):
        walks()
