"""How the whole of distillation stands: figures for operators, each bounded in what it reads."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db.models import Count, Q, QuerySet
from django.db.models.functions import TruncDate
from django.utils import timezone

from agentmemory.models import Provider, Space
from distillation.models import Cursor, DistillationPass, Quarantine
from distillation.services import spending, states
from distillation.services.spending import Usage

# Counting stops here: a badge says 99+, whatever lies behind.
MOST = 99
MOST_BEHIND = 10_000


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What waits, what fails and what it cost today.

    `states` are the sessions that are behind, by state; each number is a least where they are more than `MOST_BEHIND`.
    `today` is what each provider had, the most used first.
    """

    oldest: Cursor | None
    states: dict[str, int]
    quarantined: int
    today: dict[str, Usage]
    budget: int | None
    paused: list[Provider]

    @property
    def stuck(self) -> int:
        """Those that get on only when their time comes, or when somebody does something."""
        return sum(self.states[each] for each in states.STUCK)

    @property
    def tokens_today(self) -> int:
        return spending.whole(self.today.values()).tokens

    @property
    def cost_today(self) -> Decimal | None:
        """Unknown where no provider that was called has a price."""
        return spending.whole(self.today.values()).cost


def badges() -> dict[str, int]:
    """Cursors that are behind, and messages in quarantine, counted as far as a badge needs."""
    return {
        "waiting": _count(Cursor.objects.behind()),
        "quarantined": _count(Quarantine.objects.filter(state=Quarantine.State.HELD)),
    }


def standing() -> Standing:
    """The figures of the start page."""
    now = timezone.now()
    related = Cursor.objects.behind().select_related("session", "agent", "agent__space", "agent__provider", "space")
    return Standing(
        oldest=related.filter(due_since__isnull=False).order_by("due_since").first(),
        states=states.counted(most=MOST_BEHIND),
        quarantined=_count(Quarantine.objects.filter(state=Quarantine.State.HELD)),
        today=spending.today(),
        budget=_budget(),
        paused=list(Provider.objects.filter(Q(paused_until__gt=now) | Q(stopped_at__isnull=False))[:5]),
    )


def passes_per_day(since: datetime, until: datetime | None = None) -> dict[tuple[date, str], int]:
    """How many passes that were begun from then on ended how, by UTC day."""
    within = Q(started_at__gte=since) & (Q() if until is None else Q(started_at__lt=until))
    rows = (
        DistillationPass.objects.filter(within)
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


def backed_off(times: int) -> list[Cursor]:
    """Sessions that wait after so many failures in a row, the one with the most first; a badge's number at most."""
    rows = Cursor.objects.behind().filter(failures__gte=times, next_attempt_at__gt=timezone.now())
    return list(rows.select_related("session").order_by("-failures", "pk")[: MOST + 1])


def _budget() -> int | None:
    """Tokens that all spaces together may use in a day; none where one of them has no limit."""
    default = settings.AGENTMEMORY_DAILY_TOKENS
    limits = [
        default if own is None else own for own in Space.objects.active().values_list("daily_tokens", flat=True)[:1000]
    ]
    known = [limit for limit in limits if limit is not None]
    return sum(known) if limits and len(known) == len(limits) else None


def _count(rows: QuerySet[Any]) -> int:
    return rows.order_by().values("pk")[: MOST + 1].count()
