"""What operators do with executions and inputs: put on record with who and why, in the transaction of the act."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import transaction

from agentmemory.errors import Invalid, NotFound
from agentmemory.models import Session
from agentmemory.services import activity, transcripts
from sessions_exec.models import Execution, Input, Recovery
from sessions_exec.services import executions, inbox, recovery

_SEND = "send input"


@transaction.atomic
def recover(*, session_id: int, operator: str, reason: str) -> Recovery | None:
    """Settle a session's execution at once, if it has expired; a live one stands, whoever asks (S1, S7).

    Returns what was found and done, or `None` where it had ended at a boundary and was closed. Raises `NotFound`, and
    `Invalid` for what has not expired.
    """
    session = transcripts.lock(session_id)
    found = Execution.objects.filter(pk=session.pk).first()
    if found is None or not recovery.settle_expired(session):
        raise Invalid("It has not expired: its holder renewed it, or it was settled already.")
    row = Recovery.objects.filter(session=session, epoch=found.epoch).first()
    outcome = row.outcome if row is not None else "closed"
    _record("recover execution", session, operator, reason, **_name(found), outcome=outcome)
    return row


@transaction.atomic
def interrupt(*, session_id: int, epoch: int | None, operator: str, reason: str) -> bool:
    """Ask whoever runs a session to stop, and forget the wishes that came before (S6). Returns whether somebody does.

    Raises `NotFound`, and `Invalid` where the execution of `epoch` is not the session's last any more.
    """
    session = transcripts.lock(session_id)
    seen = _seen(session, epoch)
    asked = executions.interrupt(session=session)
    _record("interrupt execution", session, operator, reason, **_name(seen), running=asked)
    return asked


@transaction.atomic
def end_turn(*, session_id: int, epoch: int | None, operator: str, reason: str) -> None:
    """End the turn that a session is in as failed, and take its execution away from whoever holds it.

    Raises `NotFound`, and `Invalid` where there is nothing to end, or the execution of `epoch` is not the session's
    last any more: a run that began since is not what the operator looked at.
    """
    session = transcripts.lock(session_id)
    seen = _seen(session, epoch)
    if not recovery.end_turn(session=session):
        raise Invalid("Nothing is to be ended: nobody runs this session, and its last turn has ended.")
    _record("end turn", session, operator, reason, **_name(seen))


@transaction.atomic
def send_input(*, session_id: int, uid: str, prompt: str, delivery: str, operator: str) -> Input:
    """Admit an operator's prompt to a session (S4). Sent again under the same id it is the same one.

    Raises `NotFound`, `Invalid`, and what `inbox.admit` raises.
    """
    session = transcripts.lock(session_id)
    row, is_new = inbox.admit(session=session, uid=uid, prompt=prompt, delivery=delivery)
    if is_new:
        activity.record(
            _SEND,
            who=f"operator:{operator}",
            target=row,
            reason="sent from the session's page",
            space=session.space,
            detail={"session": session.name, "delivery": delivery},
        )
    return row


def senders(rows: Sequence[Input]) -> dict[int, str]:
    """Which operator sent each of these inputs; what came through the API is missing."""
    return {int(pk): who.replace(":", " ", 1) for pk, who in activity.who_did(_SEND, model=Input, rows=rows).items()}


@transaction.atomic
def cancel_input(*, input_id: int, operator: str, reason: str) -> None:
    """Take back an input that waits (S4). Raises `NotFound`, and `Invalid` for one that waits no longer."""
    named = Input.objects.filter(pk=input_id).values_list("session", flat=True).first()
    if named is None:
        raise NotFound("There is no such input.")
    # An input is settled under its session's lock alone: what is read behind it stays true.
    session = transcripts.lock(named)
    row = Input.objects.get(pk=input_id)
    if row.state != Input.State.PENDING:
        raise Invalid(f"It was {row.state} already.", field="state")
    inbox.cancel(session=session, uid=row.uid)
    activity.record(
        "cancel input",
        who=f"operator:{operator}",
        target=row,
        reason=reason,
        space=row.space,
        detail={"session": session.name, "kind": row.kind, "delivery": row.delivery},
    )


def _seen(session: Session, epoch: int | None) -> Execution:
    """The session's execution, if it still is the one that the operator was shown."""
    execution = Execution.objects.filter(pk=session.pk).first()
    if execution is None:
        raise NotFound("Nobody has run this session yet.")
    if epoch is not None and execution.epoch != epoch:
        raise Invalid(f"It was run again since you looked: epoch {execution.epoch} in place of {epoch}.")
    return execution


def _name(execution: Execution) -> dict[str, Any]:
    return {"epoch": execution.epoch, "holder": execution.holder, "phase": execution.phase}


def _record(act: str, session: Session, operator: str, reason: str, **detail: Any) -> None:
    who = f"operator:{operator}"
    activity.record(act, who=who, target=session, reason=reason, space=session.space, detail=detail, name=session.name)
