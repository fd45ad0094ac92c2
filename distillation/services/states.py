"""How each cursor stands, in one word and one line: the same in the admin, the JSON views and the commands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone
from django.utils.timesince import timeuntil

from distillation.models import Cursor
from distillation.services import gates

IDLE, DUE, RUNNING = "idle", "due", "running"
BACKING_OFF, BLOCKED, SKIPPED = "backing_off", gates.BLOCKED, gates.SKIPPED


@dataclass(frozen=True, kw_only=True)
class State:
    """One of the six words, and what stands under it."""

    name: str
    line: str


def describe(cursor: Cursor, now: datetime | None = None) -> State:
    """How a cursor stands. Needs its agent and its space; reads nothing itself."""
    now = now or timezone.now()
    if cursor.expires_at is not None and cursor.expires_at > now:
        return State(name=RUNNING, line=f"by {cursor.holder}")
    if cursor.lag == 0 and cursor.retry_seq is None:
        return State(name=IDLE, line="distilled to the last finished turn")
    closed = gates.agent_gate(cursor)
    if closed is not None:
        return State(name=closed.state, line=closed.line)
    if cursor.next_attempt_at is not None and cursor.next_attempt_at > now:
        first_line = cursor.last_error.partition("\n")[0][:200]
        wait = timeuntil(cursor.next_attempt_at, now)
        return State(name=BACKING_OFF, line=f"{_ordinal(cursor.failures)} failure, next try in {wait}: {first_line}")
    state, found, line = cursor.waits_for.partition(": ")
    if found and state in {BLOCKED, SKIPPED, DUE}:
        return State(name=state, line=line)
    if cursor.retry_seq is not None:
        return State(name=DUE, line=f"message {cursor.retry_seq}, released from quarantine, is tried again")
    return State(name=DUE, line=f"{cursor.lag} messages wait")


def describe_many(cursors: Iterable[Cursor], now: datetime | None = None) -> list[State]:
    """How each of several cursors stands, at one moment."""
    now = now or timezone.now()
    return [describe(cursor, now) for cursor in cursors]


def _ordinal(number: int) -> str:
    suffix = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"
