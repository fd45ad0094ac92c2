"""Operators take single messages back: what it will touch is told before, and who did it, and why, is kept (D23)."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction

from agentmemory.errors import Invalid, NotFound
from agentmemory.models import Message
from agentmemory.services import activity, removals, transcripts
from distillation.services import reconciliation
from distillation.services.reconciliation import Change
from sessions_exec.errors import LeaseHeld


def plan(*, messages: Sequence[Message]) -> list[Change]:
    """What taking these messages back would do to memories, session by session, without doing it."""
    by_session: dict[int, list[Message]] = {}
    for message in messages:
        by_session.setdefault(message.session_id, []).append(message)
    return [
        change
        for group in by_session.values()
        for change in reconciliation.plan(session=group[0].session, uids=[message.uid for message in group])
    ]


@transaction.atomic
def retract(*, message_id: int, operator: str, reason: str) -> list[Change]:
    """Retract one message: it stays, struck through, and is no longer read. What became of memories.

    Raises `NotFound`, and `Invalid` for one that is retracted already.
    """
    message = _locked(message_id)
    if message.retracted_at is not None:
        raise Invalid("It is retracted already.", field="retracted_at")
    changes = plan(messages=[message])
    removals.retract(session=message.session, uids=[message.uid], reason=reason)
    _record("retract message", message, changes, operator, reason)
    return changes


@transaction.atomic
def delete(*, message_id: int, operator: str, reason: str) -> list[Change]:
    """Delete one message for good; its number is never used again (R1). What became of memories.

    Raises `NotFound`, and `Invalid` while somebody runs the session (S1).
    """
    message = _locked(message_id)
    changes = plan(messages=[message])
    try:
        removals.remove(session=message.session, uids=[message.uid], reason=reason)
    except LeaseHeld as error:
        raise Invalid(f"The session is being run: {error}", field="session") from error
    _record("delete message", message, changes, operator, reason)
    return changes


def counts(changes: Sequence[Change]) -> dict[str, int]:
    """How many memories stay, return to an earlier version, or are withdrawn."""
    found: dict[str, int] = {}
    for change in changes:
        found[change.action] = found.get(change.action, 0) + 1
    return found


def _locked(message_id: int) -> Message:
    """The message, its session locked first: nothing that rests on it is written meanwhile."""
    message = Message.objects.select_related("session", "space").filter(pk=message_id).first()
    if message is not None:
        transcripts.lock(message.session_id)
        message = Message.objects.select_related("session", "space").filter(pk=message_id).first()
    if message is None:
        raise NotFound("There is no such message.")
    return message


def _record(act: str, message: Message, changes: Sequence[Change], operator: str, reason: str) -> None:
    activity.record(
        act,
        who=f"operator:{operator}",
        # The session, which is still there afterwards.
        target=message.session,
        reason=reason,
        space=message.space,
        detail={"uid": message.uid, "seq": message.seq, **counts(changes)},
    )
