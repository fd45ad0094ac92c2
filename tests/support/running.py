"""Sessions that are run, in few words; and time that passes for them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from agentmemory.models import Message, Session
from agentmemory.services import transcripts
from sessions_exec.leases import ClockTimestamp
from sessions_exec.models import Execution, Input, SessionEvent
from sessions_exec.services import executions, inbox


def acquire(session: Session, holder: str = "runner", **given: Any) -> executions.Held:
    execution = executions.acquire(session=session, holder=holder, **given)
    return executions.Held(execution_id=execution.execution_id, epoch=execution.epoch)


def expire(session: Session) -> None:
    """Let the execution's time be over; whoever holds it does not hear of it."""
    Execution.objects.filter(pk=session.pk).update(expires_at=ClockTimestamp() - timedelta(seconds=1))


def say(session: Session, uid: str, *, type: str = "user", content: Any = "Hello.", guard: Any = None) -> None:  # noqa: A002
    message = transcripts.NewMessage(uid=uid, type=type, content=content)
    transcripts.append(session=session, messages=[message], guard=guard)


def log(session: Session) -> list[str]:
    """The types of a session's events, which have no gap."""
    events = list(SessionEvent.objects.filter(session=session).order_by("seq"))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    return [event.type for event in events]


def row(session: Session) -> Execution:
    return Execution.objects.get(pk=session.pk)


def admit(session: Session, uid: str, prompt: str = "Hello.", delivery: str = "steer") -> Input:
    return inbox.admit(session=session, uid=uid, prompt=prompt, delivery=delivery)[0]


def transcript(session: Session) -> list[tuple[str, str, str]]:
    """Type, subtype and words of what was said."""
    rows = Message.objects.filter(session=session).order_by("seq")
    return [(each.type, each.subtype, each.text) for each in rows]


def is_free(session: Session) -> bool:
    execution = row(session)
    return (execution.holder, execution.expires_at, execution.phase) == ("", None, "safe")
