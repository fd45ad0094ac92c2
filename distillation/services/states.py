"""How each cursor stands, in one word and one line: the same in the admin, the JSON views and the commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Case, Q, Value, When
from django.utils import timezone
from django.utils.timesince import timeuntil

from agentmemory.models import Agent
from agentmemory.services import naming
from distillation.models import Cursor
from distillation.querysets import BEHIND
from distillation.services import gates, holders

IDLE, DUE, RUNNING = "idle", "due", "running"
BACKING_OFF, BLOCKED, SKIPPED = "backing_off", gates.BLOCKED, gates.SKIPPED
WORK = (DUE, RUNNING, BACKING_OFF, BLOCKED, SKIPPED)
"""The states of sessions that are behind."""
STUCK = (BACKING_OFF, BLOCKED, SKIPPED)
"""Those among them in which nothing is done now."""


@dataclass(frozen=True, kw_only=True)
class State:
    """One of the six words, and what stands under it."""

    name: str
    line: str


def describe(cursor: Cursor, now: datetime | None = None, *, private: bool) -> State:
    """How a cursor stands. Needs its agent and its space; reads nothing itself.

    An error may quote what was read or answered: it is left out for who may not read what is private.
    """
    now = now or timezone.now()
    if cursor.expires_at is not None and cursor.expires_at > now:
        return State(name=RUNNING, line=_held(cursor.holder, cursor.expires_at, now))
    if cursor.lag == 0 and cursor.retry_seq is None:
        return State(name=IDLE, line="distilled to the last finished turn")
    closed = gates.agent_gate(cursor)
    if closed is not None:
        return State(name=closed.state, line=closed.line)
    if cursor.next_attempt_at is not None and cursor.next_attempt_at > now:
        said = ": " + cursor.last_error.partition("\n")[0][:200] if private else ""
        wait = timeuntil(cursor.next_attempt_at, now)
        return State(name=BACKING_OFF, line=f"{_ordinal(cursor.failures)} failure, next try in {wait}{said}")
    state, found, line = naming.wait(cursor.waits_for, private=private).partition(": ")
    if found and state in {BLOCKED, SKIPPED, DUE}:
        return State(name=state, line=line)
    if cursor.retry_seq is not None:
        return State(name=DUE, line=f"message {cursor.retry_seq}, released from quarantine, is tried again")
    return State(name=DUE, line="1 message waits" if cursor.lag == 1 else f"{cursor.lag} messages wait")


def describe_many(cursors: Iterable[Cursor], now: datetime | None = None, *, private: bool) -> list[State]:
    """How each of several cursors stands, at one moment."""
    now = now or timezone.now()
    return [describe(cursor, now, private=private) for cursor in cursors]


def word(now: datetime) -> Case:
    """The name that `describe` gives to a cursor, as an expression of the database."""
    may_work = Q(agent__status=Agent.Status.ACTIVE, agent__archived_at__isnull=True, space__archived_at__isnull=True)
    return Case(
        When(expires_at__gt=now, then=Value(RUNNING)),
        When(~BEHIND, then=Value(IDLE)),
        When(~may_work, then=Value(BLOCKED)),
        When(next_attempt_at__gt=now, then=Value(BACKING_OFF)),
        When(waits_for__startswith=f"{BLOCKED}: ", then=Value(BLOCKED)),
        When(waits_for__startswith=f"{SKIPPED}: ", then=Value(SKIPPED)),
        default=Value(DUE),
    )


def counted(*, most: int) -> dict[str, int]:
    """How many sessions that are behind stand how. Only `most` of them are looked at: then each number is a least."""
    behind = Cursor.objects.behind().annotate(word=word(timezone.now()))
    words = behind.order_by().values_list("word", flat=True)[:most]
    return dict.fromkeys(WORK, 0) | Counter(words)


def _held(holder: str, until: datetime, now: datetime) -> str:
    if not holder.endswith(holders.DEAD):
        return f"by {holder}"
    return f"its process died; taken over in {timeuntil(until, now)}"


def _ordinal(number: int) -> str:
    suffix = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"
