"""When a session is taken up next, as far as that is known: what stands beside its state."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.utils.timesince import timeuntil

from distillation.models import Cursor
from distillation.services import coordinator, gates, states
from sessions_exec import queue
from sessions_exec.models import Tick
from sessions_exec.services import heartbeats

SOON = timedelta(minutes=1)
"""The queue's scheduler is half a minute late at most, and then its task is pulled."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """Whether a worker lives that would take something up, and when the coordinator looks next; nothing: unknown."""

    working: bool
    at: datetime | None = None


def look() -> Look:
    """As it stands now."""
    return Look(working=heartbeats.alive(), at=queue.next_run(coordinator.NAME) or _by_ticker())


def words(cursor: Cursor, state: states.State, *, look: Look, now: datetime) -> str:
    """When somebody looks at a session that may be worked at; empty for one that is at rest, or has its time."""
    if state.name == states.RUNNING:
        again = cursor.requested_at and cursor.acquired_at and cursor.requested_at > cursor.acquired_at
        return "asked for again: taken up when the pass that runs has ended" if again else ""
    if state.name in {states.IDLE, states.BACKING_OFF} or gates.agent_gate(cursor):
        return ""
    if not look.working:
        return "asked for: taken up when a worker runs" if cursor.requested_at else "looked at when a worker runs"
    if cursor.enqueued_at is not None:
        return "a task was made for it: taken up when a worker is free"
    if cursor.requested_at is not None:
        return "asked for: taken up within seconds"
    if look.at is None:
        return "looked at when the coordinator does"
    if look.at < now + SOON:
        return "looked at within a minute"
    return f"looked at within {timeuntil(look.at, now)}".replace("\xa0", " ")


def _by_ticker() -> datetime | None:
    last = Tick.objects.filter(name=coordinator.NAME).first()
    return last.at + timedelta(seconds=settings.AGENTMEMORY_CADENCE) if last else None
