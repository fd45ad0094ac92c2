"""Finds what is due, from state, and makes one task for each agent (D22).

Two coordinators at once do no harm: rows that one has locked the other skips, and a task that finds nothing due does
nothing. A lost task costs time: its mark grows old, and the next tick makes another.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from agentmemory.errors import NotFound
from agentmemory.models import Session
from agentmemory.services import transcripts
from distillation.errors import BackingOff
from distillation.models import Cursor
from distillation.querysets import CursorQuerySet
from sessions_exec import queue
from sessions_exec.services import executions

NAME = "coordinator"
"""What its schedule and its tick are called."""
TASK = "distillation.tasks.distil_agent"
MOST_AT_ONCE = 5_000


@dataclass(frozen=True, kw_only=True)
class Dispatched:
    """How many sessions were found due, and of how many agents."""

    cursors: int
    agents: int

    def __str__(self) -> str:
        return f"{self.cursors} sessions of {self.agents} agents are due"


def tick(*, now: datetime | None = None) -> Dispatched:
    """Finish quiet sessions, then make a task for every agent with a session that is due."""
    now = now or timezone.now()
    finish_quiet_sessions(now=now)
    return _dispatch(Cursor.objects.due(now).filter(_not_marked(now)), now=now)


def dispatch_requested(*, now: datetime | None = None) -> Dispatched:
    """The same for those sessions alone that somebody asked for, or that a full window waits in."""
    now = now or timezone.now()
    asked = Cursor.objects.due(now).filter(_not_marked(now), requested_at__isnull=False)
    return _dispatch(asked, now=now)


def marked(limit: int, without: Collection[int]) -> list[int]:
    """Ids of due cursors that a task was made for and that none has taken up: whichever task has room may."""
    due = Cursor.objects.due(timezone.now()).filter(enqueued_at__isnull=False).exclude(pk__in=without)
    return list(due.order_by("due_since", "pk").values_list("pk", flat=True)[:limit])


def finish_quiet_sessions(*, now: datetime) -> int:
    """End the turns that silent sessions left open, but not where somebody is at work (R6). Returns how many."""
    quiet = executions.unheld(transcripts.quiet_sessions(now=now))
    for session_id in quiet:
        # Deleted since it was found, it needs no end.
        with contextlib.suppress(NotFound):
            transcripts.finish(session_id=session_id, now=now)
    return len(quiet)


@transaction.atomic
def request(*, session: Session, force: bool = False) -> None:
    """Ask for a pass now, also when nothing is new or one is running. Raises `BackingOff` unless `force`."""
    now = timezone.now()
    cursor = Cursor.objects.select_for_update(of=("self",)).filter(session=session).first()
    if cursor is None:
        return
    if cursor.next_attempt_at is not None and cursor.next_attempt_at > now and not force:
        raise BackingOff(cursor.next_attempt_at)
    Cursor.objects.filter(pk=cursor.pk).update(requested_at=now, next_attempt_at=None, enqueued_at=None)


@transaction.atomic
def _dispatch(due: CursorQuerySet, *, now: datetime) -> Dispatched:
    chosen = due.order_by("due_since", "pk").select_for_update(skip_locked=True, of=("self",), no_key=True)
    rows = list(chosen.values_list("pk", "agent_id")[:MOST_AT_ONCE])
    agents = list(dict.fromkeys(agent_id for _, agent_id in rows))
    _mark((pk for pk, _ in rows), now=now)
    queue.enqueue_many(TASK, agents)
    return Dispatched(cursors=len(rows), agents=len(agents))


def _mark(ids: Iterable[int], *, now: datetime) -> None:
    Cursor.objects.filter(pk__in=list(ids)).update(enqueued_at=now)


def _not_marked(now: datetime) -> Q:
    """Without a task that may still come: one that was made long ago is taken for lost."""
    # Below the cadence (checked at start-up), so that the next tick already makes another.
    old = now - timedelta(seconds=settings.AGENTMEMORY_BACKOFF_BASE)
    return Q(enqueued_at__isnull=True) | Q(enqueued_at__lte=old)
