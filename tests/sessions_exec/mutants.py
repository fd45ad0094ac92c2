"""Each rule of how a session is run, broken on purpose: in the services, and in the small world of the explorer.

A rule that both ask of `sessions_exec.rules` is broken there, once for both. One that the database decides within a
statement is broken in each of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import DatabaseError

from agentmemory.models import Session
from agentmemory.services import outcomes
from sessions_exec import leases, rules
from sessions_exec.errors import LeaseLost, SessionsExecError
from sessions_exec.models import Execution, Input
from sessions_exec.querysets import ExecutionQuerySet, InputQuerySet
from sessions_exec.services import executions, inbox, recovery
from tests.sessions_exec import world

Patch = pytest.MonkeyPatch
# How a broken rule is noticed: by an assertion of the model, or by what the broken services themselves run into.
NOTICED = (AssertionError, SessionsExecError, DatabaseError)


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One broken rule."""

    name: str
    services: Callable[[Patch], None]
    world: Callable[[Patch], None]


def _rule(name: str, broken: Callable[..., Any]) -> Mutant:
    """Both ask `rules` by the name of the function."""

    def put(patch: Patch) -> None:
        patch.setattr(rules, _RULES[name], broken)

    return Mutant(name=name, services=put, world=put)


def _statement(services: Callable[[Patch], None], **world_has: Callable[..., Any]) -> Mutant:
    def put(patch: Patch) -> None:
        for name, broken in world_has.items():
            patch.setattr(world, name, broken)

    return Mutant(name=services.__name__.strip("_"), services=services, world=put)


_RULES = {
    "older_answers": "needs_nothing",
    "everything_is_safe": "needs_nothing",
    "no_cap": "gives_up",
    "late_continuation": "due",
    "all_queued_at_once": "due",
    "any_retry": "is_retry",
    "flip_forgets_the_wish": "wish_after_flip",
    "continuation_in_spite_of_an_interrupt": "wish_for_continuation",
}


def _late_continuation(waiting: Sequence[rules.Waiting], *, boundary: str, most: int) -> list[int]:
    steers = [one.key for one in waiting if one.delivery == "steer"]
    return steers if steers or boundary == "step" else [one.key for one in waiting][:1]


def _all_queued_at_once(waiting: Sequence[rules.Waiting], *, boundary: str, most: int) -> list[int]:
    return [one.key for one in waiting]


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


def _any_answer(patch: Patch) -> None:
    patch.setattr(recovery, "_own", lambda session, execution: outcomes.newest_assistant(session))


def _live_ones_are_recovered(patch: Patch) -> None:
    patch.setattr(ExecutionQuerySet, "expired", ExecutionQuerySet.held)


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


def _phase_is_not_kept(patch: Patch) -> None:
    patch.setattr(executions, "_move", lambda session, before, changes: None)


def _recovery_keeps_the_lease(patch: Patch) -> None:
    patch.setattr(recovery, "_close", lambda execution: Execution.objects.filter(pk=execution.pk).update(phase="safe"))


def _cancelled(inputs: tuple[world.Input, ...]) -> tuple[world.Input, ...]:
    return tuple(one._replace(state="cancelled") if one.state == "pending" else one for one in inputs)


MUTANTS = [
    _rule("older_answers", lambda *, phase, own, newest: phase == "safe"),
    _rule("everything_is_safe", lambda **_: True),
    _rule("no_cap", lambda **_: False),
    _rule("late_continuation", _late_continuation),
    _rule("all_queued_at_once", _all_queued_at_once),
    _rule("any_retry", lambda **_: True),
    _rule("flip_forgets_the_wish", lambda *, wanted, delivery: wanted and delivery == "queue"),
    _rule("continuation_in_spite_of_an_interrupt", lambda **_: True),
    _statement(_expiry, live=lambda row: row.held),
    _statement(_fence_expiry, fence=lambda row, epoch: row.held and row.epoch == epoch),
    _statement(_epoch, hold=lambda row, epoch: row.held and row.unexpired),
    _statement(_silent_take_over, free=lambda row: not row.held or not row.unexpired),
    _statement(_epoch_stands_still, next_epoch=lambda row: 1),
    _statement(_any_answer, own=lambda state: state.answers or None),
    _statement(_live_ones_are_recovered, expired=lambda row: row.held),
    _statement(_release_without_a_look, wakes=lambda state: False),
    _statement(_interrupt_keeps_wishes, forget=lambda inputs: inputs),
    _statement(_interrupt_drops_inputs, forget=_cancelled),
    _statement(_phase_is_not_kept, moved=lambda row, phase: row),
    _statement(_recovery_keeps_the_lease, closed=lambda row: row._replace(phase="safe")),
]
