"""How execution stands, for operators: figures that are each bounded in what they read, and states in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from agentmemory.services import naming
from sessions_exec.leases import ClockTimestamp
from sessions_exec.models import Execution, Input, Recovery

# Counting stops here: a badge says 99+, whatever lies behind.
MOST = 99


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Executions that are live, expired and recovered since midnight (UTC), and inputs that wait."""

    live: int
    expired: int
    recovered: int
    waiting: int


def expired() -> int:
    """Executions whose time is over and that nobody has settled yet, counted as far as a badge needs."""
    return _count(Execution.objects.expired())


def figures() -> Standing:
    """The figures of the start page."""
    return Standing(
        live=_count(Execution.objects.held().live()),
        expired=expired(),
        recovered=_recovered_today(timezone.now()),
        waiting=_count(Input.objects.pending()),
    )


def of(execution: Execution, now: datetime) -> str:
    """The state of an execution: `live`, `expired`, or `idle` where nobody holds it. `now` is the database's."""
    if not execution.holder or execution.expires_at is None:
        return "idle"
    return "live" if execution.expires_at > now else "expired"


def reasons(rows: Sequence[Input]) -> dict[int, str]:
    """Why inputs of one session wait, by their primary keys; those that wait no longer are left out."""
    waiting = [row for row in rows if row.state == Input.State.PENDING]
    if not waiting:
        return {}
    found: Any = Execution.objects.filter(session=waiting[0].session_id).annotate(now=ClockTimestamp()).first()
    now = timezone.now() if found is None else found.now
    return {row.pk: why(row, found, now, private=True) for row in waiting}


def why(waiting: Input, execution: Execution | None, now: datetime, *, private: bool) -> str:
    """Why an input waits (S5, S6), given the execution of its session. `now` is the database's clock.

    What a provider has said is left out for who may not read what is private.
    """
    state = of(execution, now) if execution is not None else "idle"
    if state == "expired":
        return "the execution has expired: what it left is looked at first"
    if state == "idle":
        if not waiting.resume:
            return "nobody wants it run now"
        kept = naming.wait(execution.waits_for, private=private) if execution is not None else ""
        return kept or "for a runner: nobody runs the session"
    if waiting.kind == Input.Kind.CONTINUATION or waiting.delivery == Input.Delivery.STEER:
        return "for the next step of the run"
    return "until the run would go idle"


def _recovered_today(now: datetime) -> int:
    """Among the newest recoveries, which are in the order of their time: no index by time is needed."""
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    newest = Recovery.objects.order_by("-pk").values_list("recovered_at", flat=True)[: MOST + 1]
    return sum(at >= midnight for at in newest)


def _count(rows: QuerySet[Any]) -> int:
    return rows.order_by().values("pk")[: MOST + 1].count()
