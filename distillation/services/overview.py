"""How the whole of distillation stands: figures for operators, each bounded in what it reads."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Count, F, OuterRef, Q, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce, TruncDate
from django.utils import timezone

from agentmemory.models import Provider, Space
from distillation.models import Cursor, DistillationPass, Quarantine

# Counting stops here: a badge says 99+, whatever lies behind.
MOST = 99


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What waits, what fails and what it cost today."""

    oldest: Cursor | None
    backing_off: int
    blocked: int
    quarantined: int
    failed_today: int
    passes_today: int
    tokens_today: int
    budget: int | None
    paused: list[Provider]


def badges() -> dict[str, int]:
    """Cursors that are behind, and messages in quarantine, counted as far as a badge needs."""
    return {
        "waiting": _count(Cursor.objects.behind()),
        "quarantined": _count(Quarantine.objects.filter(state=Quarantine.State.HELD)),
    }


def standing() -> Standing:
    """The figures of the start page."""
    now = timezone.now()
    behind = Cursor.objects.behind()
    related = behind.select_related("session", "agent", "agent__space", "agent__provider", "space")
    passes, failed, tokens = _today(now)
    return Standing(
        oldest=related.filter(due_since__isnull=False).order_by("due_since").first(),
        backing_off=_count(behind.filter(next_attempt_at__gt=now)),
        blocked=_count(behind.exclude(waits_for="")),
        quarantined=_count(Quarantine.objects.filter(state=Quarantine.State.HELD)),
        failed_today=failed,
        passes_today=passes,
        tokens_today=tokens,
        budget=_budget(),
        paused=list(Provider.objects.filter(paused_until__gt=now)[:5]),
    )


def passes_per_day(days: int = 30) -> dict[tuple[date, str], int]:
    """How many passes ended how, by UTC day."""
    since = _midnight(timezone.now()) - timedelta(days=days - 1)
    rows = (
        DistillationPass.objects.filter(started_at__gte=since)
        .order_by()
        .annotate(day=TruncDate("started_at", tzinfo=UTC))
        .values_list("day", "outcome")
        .annotate(n=Count("pk"))
    )
    return {(day, outcome): n for day, outcome, n in rows}


def latest(count: int = 5) -> list[DistillationPass]:
    """The newest passes."""
    return list(DistillationPass.objects.select_related("agent").defer("answer").order_by("-id")[:count])


def held(count: int = 5) -> list[Quarantine]:
    """Messages in quarantine that wait for a decision."""
    rows = Quarantine.objects.filter(state=Quarantine.State.HELD)
    return list(rows.select_related("cursor__session").order_by("-id")[:count])


def _today(now: datetime) -> tuple[int, int, int]:
    """Passes, failures and tokens since midnight, space by space, each from the index of its newest passes."""
    today = (
        DistillationPass.objects.filter(space=OuterRef("pk"), started_at__gte=_midnight(now)).order_by().values("space")
    )
    sums = Space.objects.order_by().annotate(
        begun=Coalesce(Subquery(today.annotate(n=Count("pk")).values("n")), 0),
        failed=Coalesce(Subquery(today.annotate(n=Count("pk", filter=Q(outcome="failed"))).values("n")), 0),
        spent=Coalesce(Subquery(today.annotate(n=Sum(F("input_tokens") + F("output_tokens"))).values("n")), 0),
    )
    found = sums.aggregate(p=Coalesce(Sum("begun"), 0), f=Coalesce(Sum("failed"), 0), t=Coalesce(Sum("spent"), 0))
    return int(found["p"]), int(found["f"]), int(found["t"])


def _budget() -> int | None:
    """Tokens that all spaces together may use in a day; none where one of them has no limit."""
    default = settings.AGENTMEMORY_DAILY_TOKENS
    limits = [
        default if own is None else own for own in Space.objects.active().values_list("daily_tokens", flat=True)[:1000]
    ]
    known = [limit for limit in limits if limit is not None]
    return sum(known) if limits and len(known) == len(limits) else None


def _midnight(now: datetime) -> datetime:
    return now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _count(rows: QuerySet[Any]) -> int:
    return rows.order_by().values("pk")[: MOST + 1].count()
