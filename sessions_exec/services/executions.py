"""The right to run a session: acquired, renewed, moved through its phases, interrupted, released (S1 to S6).

Whatever moves or relies on an execution locks the session first and the execution after it; a plain renewal locks the
execution alone, so that no work in the session makes it late.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from agentmemory.errors import Invalid
from agentmemory.models import Session
from agentmemory.services import limits, transcripts
from sessions_exec import faults
from sessions_exec.errors import LeaseHeld, LeaseLost
from sessions_exec.leases import ClockTimestamp
from sessions_exec.models import Execution, Input, SessionEvent
from sessions_exec.services import events, inbox, recovery

Type = SessionEvent.Type
Phase = Execution.Phase
NAME_LENGTH = 200


@dataclass(frozen=True, kw_only=True)
class Held:
    """Proof of holding an execution: a guard for the writes of transcripts. Raises `LeaseLost` where it is none."""

    execution_id: UUID
    epoch: int

    def __call__(self, session: Session) -> None:
        Execution.objects.hold(session.pk, execution_id=self.execution_id, epoch=self.epoch)


@dataclass(frozen=True, kw_only=True)
class Released:
    """`pending` inputs wait in the session that was given back."""

    pending: int


def guard(*, execution_id: object, epoch: int) -> Held:
    """The guard of an execution as a client names it. Raises `LeaseLost` for a name that none has."""
    try:
        return Held(execution_id=UUID(str(execution_id)), epoch=epoch)
    except ValueError:
        raise LeaseLost("There is no such execution.") from None


def live(sessions: Iterable[Session]) -> dict[int, Execution]:
    """The live executions of sessions, by the session's key."""
    found = Execution.objects.live().filter(session__in=[session.pk for session in sessions])
    return {execution.pk: execution for execution in found}


def unheld(session_ids: Sequence[int]) -> list[int]:
    """Those of the sessions that nobody runs, nor left without being recovered yet."""
    held = set(Execution.objects.held().filter(pk__in=session_ids).values_list("pk", flat=True))
    return [pk for pk in session_ids if pk not in held]


@transaction.atomic
def acquire(*, session: Session, holder: str, seconds: float | None = None) -> Execution:
    """Take the right to run a session for `seconds`, and for as long again with each renewal.

    An execution that has expired is recovered in the same transaction (S7). Raises `LeaseHeld` while a live one
    stands, whoever holds it (S1).
    """
    holder = limits.text(holder, field="owner", maximum=NAME_LENGTH)
    session = transcripts.lock(session.pk)
    before, _ = Execution.objects.get_or_create(session=session, defaults={"space_id": session.space_id})
    if before.holder:
        _recover_or_refuse(session)
    term = settings.AGENTMEMORY_EXECUTION_LEASE if seconds is None else seconds
    Execution.objects.acquire(session.pk, holder=holder, seconds=term)
    Execution.objects.filter(pk=session.pk).update(
        execution_id=uuid.uuid4(),
        phase=Phase.READY,
        seconds=term,
        assistant_uid="",
        interrupted_at=None,
        own=False,
        waits_for="",
    )
    execution = Execution.objects.get(pk=session.pk)
    events.append(session=session, entries=[(Type.EXECUTION_ACQUIRED, {**_name(execution), "holder": holder})])
    faults.reach("acquire.before_commit")
    return execution


@transaction.atomic
def renew(*, session: Session, held: Held, phase: str | None = None, assistant_uid: str | None = None) -> Execution:
    """Hold on for another term; and move the phase, or say which assistant message is in the making.

    A dispatch may follow only an answered move to `unknown` (S6). Raises `LeaseLost`, `Invalid`.
    """
    if phase is not None and phase not in Phase.values:
        raise Invalid(f"One of {', '.join(Phase.values)}.", field="phase")
    if assistant_uid is not None:
        assistant_uid = limits.text(assistant_uid, field="assistant_uid", maximum=NAME_LENGTH, blank=True)
    changes = {name: value for name, value in (("phase", phase), ("assistant_uid", assistant_uid)) if value is not None}
    if changes:
        session = transcripts.lock(session.pk)
    mine = Execution.objects.filter(execution_id=held.execution_id)
    before = mine.filter(pk=session.pk, epoch=held.epoch).first()
    if before is None:
        raise LeaseLost(f"This execution does not hold the session (epoch {held.epoch}).")
    mine.renew(session.pk, epoch=held.epoch, seconds=before.seconds)
    if any(getattr(before, name) != value for name, value in changes.items()):
        _move(session, before, changes)
    return Execution.objects.get(pk=session.pk)


@transaction.atomic
def release(*, session: Session, held: Held) -> Released:
    """Give the session back. What was admitted up to this moment is counted, and run if somebody wants it (S6).

    The session's lock orders it against admissions: each comes before, and is counted here, or after, and finds the
    session free. Raises `LeaseLost`.
    """
    session = transcripts.lock(session.pk)
    held(session)
    Execution.objects.release(session.pk, epoch=held.epoch)
    Execution.objects.filter(pk=session.pk).update(phase=Phase.SAFE, assistant_uid="", interrupted_at=None)
    pending = Input.objects.pending().filter(session=session).count()
    data = {"id": str(held.execution_id), "epoch": held.epoch, "pending": pending}
    events.append(session=session, entries=[(Type.EXECUTION_RELEASED, data)])
    inbox.wake(session)
    return Released(pending=pending)


@transaction.atomic
def interrupt(*, session: Session) -> bool:
    """Ask whoever runs a session to stop, and forget the wishes that came before (S6). No input is lost.

    Returns whether somebody runs it. They hear of it at the next renewal, settle, and release.
    """
    session = transcripts.lock(session.pk)
    Input.objects.wanted().filter(session=session).update(resume=False)
    execution = Execution.objects.held().filter(pk=session.pk).first()
    if execution is None:
        return False
    if execution.interrupted_at is None:
        # Exactly this one: a successor that came meanwhile is not meant (it would need the session's lock).
        same = Execution.objects.held().filter(pk=session.pk, epoch=execution.epoch)
        same.update(interrupted_at=ClockTimestamp())
        events.append(session=session, entries=[(Type.EXECUTION_INTERRUPTED, _name(execution))])
    return True


def _recover_or_refuse(session: Session) -> None:
    """Settle an execution that has expired; a live one stands (S1). The session is locked."""
    if not recovery.settle_expired(session):
        standing = Execution.objects.get(pk=session.pk)
        raise LeaseHeld("Somebody runs this session.", holder=standing.holder, expires_at=standing.expires_at)


def _move(session: Session, before: Execution, changes: dict[str, Any]) -> None:
    Execution.objects.set_while_held(before.pk, epoch=before.epoch, **changes)
    moved = {"phase": before.phase, "assistant_uid": before.assistant_uid, **changes}
    events.append(session=session, entries=[(Type.EXECUTION_PHASE, {**_name(before), **moved})])


def _name(execution: Execution) -> dict[str, Any]:
    return {"id": str(execution.execution_id), "epoch": execution.epoch}
