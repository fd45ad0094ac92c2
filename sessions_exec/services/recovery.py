"""What follows an execution that expired: nothing uncertain is run again silently (S7 to S9).

Any number of scanners may run, and acquisitions beside them: an expired execution is settled once, in one transaction
with all that follows from it. Whoever dies before the commit has done nothing; after it nothing is left to do.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from django.db import transaction

from agentmemory.models import Message, Session
from agentmemory.services import outcomes, transcripts
from sessions_exec import faults, rules, wording
from sessions_exec.errors import LeaseLost
from sessions_exec.models import Execution, Input, Recovery, SessionEvent
from sessions_exec.models.webhooks import Event
from sessions_exec.querysets import ExecutionQuerySet
from sessions_exec.services import announcing, events, inbox

logger = logging.getLogger(__name__)

Type = SessionEvent.Type
MOST_RECOVERIES = 10
MOST_AT_ONCE = 200


@dataclass(frozen=True, kw_only=True)
class Scanned:
    """What a scan did: executions settled, and sessions told of again whose inputs nobody took up."""

    settled: int
    stranded: int

    def __str__(self) -> str:
        return f"{self.settled} executions settled, {self.stranded} sessions with waiting inputs"


def scan() -> Scanned:
    """Settle what has expired, one session a transaction, and tell of inputs that wait in vain.

    What goes wrong with one session is noted and does not hold up the others.
    """
    settled = 0
    expired = Execution.objects.expired().order_by("expires_at").values_list("pk", flat=True)
    for session_id in list(expired[:MOST_AT_ONCE]):
        try:
            settled += recover(session_id=session_id)
        except Exception:
            logger.exception("a recovery failed", extra={"action": "recovery.failed", "session": session_id})
    return Scanned(settled=settled, stranded=inbox.sweep())


@transaction.atomic
def recover(*, session_id: int) -> bool:
    """Settle the execution of a session if it has expired; a session that another holds locked is passed over.

    Returns whether there was something to settle, and it was.
    """
    free = Session.objects.select_for_update(of=("self",), no_key=True, skip_locked=True).select_related("agent")
    session = free.filter(pk=session_id).first()
    return session is not None and settle_expired(session, skip_locked=True)


def settle_expired(session: Session, *, skip_locked: bool = False) -> bool:
    """Settle the execution of a session that the caller has locked, if it has expired. Returns whether it did.

    The row is locked against everyone, fences included: a write that was guarded before is waited for, or makes
    `skip_locked` pass it over; none comes after.
    """
    if not Execution.objects.expired().filter(pk=session.pk).exists():
        # Without a lock: one that waits here would hold up the renewals of a live execution.
        return False
    locked = Execution.objects.filter(pk=session.pk).select_for_update(skip_locked=skip_locked)
    # Judged again after the wait: a renewal may just have come in time.
    execution = Execution.objects.expired().filter(pk__in=list(locked.values_list("pk", flat=True))).first()
    if execution is None:
        return False
    if _needs_nothing(session, execution):
        data = {"id": str(execution.execution_id), "epoch": execution.epoch, "expired": True}
        _close(execution)
        events.append(session=session, entries=[(Type.EXECUTION_RELEASED, data)])
    else:
        _recover(session, execution)
        _close(execution)
    faults.reach("recovery.before_commit")
    inbox.wake(session)
    return True


@transaction.atomic
def end_turn(*, session: Session) -> bool:
    """End the turn that a session is in as failed, whoever runs it: its execution is taken away (an operator's act).

    What its holder had under way is marked as uncertain, and its next write is refused. Returns whether there was
    anything to end.
    """
    session = transcripts.lock(session.pk)
    list(Execution.objects.filter(pk=session.pk).select_for_update().values_list("pk"))
    execution = Execution.objects.held().filter(pk=session.pk).first()
    if execution is not None:
        own = _own(session, execution)
        if own is not None:
            _mark_uncertain(session, own, outcomes.unfinished_tool_calls(session, own))
        _leave(Execution.objects.filter(pk=session.pk))
        data = {"id": str(execution.execution_id), "epoch": execution.epoch, "ended": True}
        events.append(session=session, entries=[(Type.EXECUTION_RELEASED, data)])
    open_turn = session.terminal_seq < session.last_seq
    if open_turn:
        _say(session, f"ended-{uuid.uuid4()}", Message.Type.RESULT, wording.ENDED, subtype="error_ended")
    return execution is not None or open_turn


def _mark_uncertain(session: Session, answer: Message, calls: Sequence[str]) -> None:
    outcomes.fail(session, answer, tool_outcomes=dict.fromkeys(calls, wording.TOOL_OUTCOME))


def _needs_nothing(session: Session, execution: Execution) -> bool:
    """Whether it ended at a boundary, or the conversation has gone on without it (S7)."""
    own, newest = _own(session, execution), outcomes.newest_assistant(session)
    return rules.needs_nothing(phase=execution.phase, own=_place(own), newest=_place(newest))


def _place(message: Message | None) -> int | None:
    return message.seq if message is not None else None


def _own(session: Session, execution: Execution) -> Message | None:
    """The newest assistant message of this execution; an older one than that is never looked at (S8)."""
    return outcomes.assistant(session, execution.assistant_uid) if execution.assistant_uid else None


def _close(execution: Execution) -> None:
    """Leave the row without a holder. Raises `LeaseLost` unless it is exactly the expired one that was looked at."""
    same = Execution.objects.expired().filter(pk=execution.pk, epoch=execution.epoch, phase=execution.phase)
    if _leave(same) != 1:
        raise LeaseLost("The execution that was to be recovered has changed.")


def _leave(rows: ExecutionQuerySet) -> int:
    return rows.update(holder="", expires_at=None, phase=Execution.Phase.SAFE, assistant_uid="", interrupted_at=None)


def _recover(session: Session, execution: Execution) -> None:
    turn = session.terminal_seq
    earlier = Recovery.objects.filter(session=session, turn=turn).count()
    failed = rules.gives_up(earlier=earlier, most=MOST_RECOVERIES)
    own = _own(session, execution)
    calls = outcomes.unfinished_tool_calls(session, own) if own is not None else []
    uid = own.uid if own is not None else f"recovery-{uuid.uuid4()}"
    events.append(session=session, entries=[_told(execution, uid, calls, failed=failed)])
    if own is not None:
        _mark_uncertain(session, own, calls)
    else:
        _say(session, uid, Message.Type.SYSTEM, _what_happened(execution), subtype="recovery")
    continuation: Input | None = None
    if failed:
        _give_up(session)
    else:
        continuation = _continue(session, execution)
    Recovery.objects.create(
        space_id=session.space_id,
        session=session,
        execution_id=execution.execution_id,
        epoch=execution.epoch,
        holder=execution.holder,
        phase=execution.phase,
        expired_at=cast(datetime, execution.expires_at),
        turn=turn,
        message_uid=uid,
        synthetic=own is None,
        tool_calls=calls,
        continuation=continuation,
        outcome=Recovery.Outcome.FAILED if failed else Recovery.Outcome.CONTINUED,
    )
    announcing.announce(
        Event.EXECUTION_RECOVERED, space_id=session.space_id, data=_announced(session, execution, calls, failed=failed)
    )


def _announced(session: Session, execution: Execution, calls: Sequence[str], *, failed: bool) -> dict[str, object]:
    return {
        "agent": session.agent.handle,
        "session": session.name,
        "execution": str(execution.execution_id),
        "epoch": execution.epoch,
        "phase": execution.phase,
        "tool_calls": len(calls),
        "outcome": "failed" if failed else "continued",
    }


def _told(execution: Execution, uid: str, calls: Sequence[str], *, failed: bool) -> tuple[Type, dict[str, object]]:
    return Type.EXECUTION_RECOVERED, {
        "id": str(execution.execution_id),
        "epoch": execution.epoch,
        "holder": execution.holder,
        "phase": execution.phase,
        "message_uid": uid,
        "tool_calls": list(calls),
        "outcome": "failed" if failed else "continued",
    }


def _what_happened(execution: Execution) -> str:
    return wording.STEP_UNKNOWN if execution.phase == Execution.Phase.UNKNOWN else wording.STEP_READY


def _continue(session: Session, execution: Execution) -> Input:
    """The input that asks to go on."""
    return inbox.admit_continuation(
        session=session,
        uid=f"continuation-{uuid.uuid4()}",
        prompt=wording.CONTINUE,
        resume=rules.wish_for_continuation(interrupted=execution.interrupted_at is not None),
    )


def _give_up(session: Session) -> None:
    """End the turn (S9). A continuation of an earlier recovery is done with."""
    inbox.drop_continuations(session)
    _say(session, f"recovery-{uuid.uuid4()}", Message.Type.RESULT, wording.GIVEN_UP, subtype="error_recoveries")


def _say(session: Session, uid: str, kind: str, text: str, *, subtype: str) -> None:
    message = transcripts.NewMessage(uid=uid, type=kind, content=text, subtype=subtype, is_error=True)
    transcripts.append(session=session, messages=[message], guard=_settling)


def _settling(session: Session) -> None:
    """The guard of a recovery's own messages: it holds the locks of the session and of the expired execution."""
