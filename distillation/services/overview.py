"""How the whole of distillation stands: figures for operators, each bounded in what it reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from typing import Any

from django.conf import settings
from django.db.models import Count, F, Q, QuerySet, Sum
from django.db.models.functions import TruncDate
from django.utils import timezone

from agentmemory.models import Agent, Provider, Space
from distillation.models import Cursor, DistillationPass, Quarantine
from distillation.services import states
from sessions_exec.models import ModelCall

# Counting stops here: a badge says 99+, whatever lies behind.
MOST = 99
MOST_BEHIND = 10_000
SPENT_SHOWN = 1_000
_COUNTED = ("calls", "failed", "input_tokens", "output_tokens")


@dataclass(frozen=True, kw_only=True)
class Used:
    """What a provider had since midnight (UTC): calls, tokens and money, passes' and runs' together."""

    provider: str
    calls: int
    failed: int
    tokens: int
    cost: Decimal | None


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What waits, what fails and what it cost today.

    `states` are the sessions that are behind, by state; each number is a least where they are more than `MOST_BEHIND`.
    """

    oldest: Cursor | None
    states: dict[str, int]
    quarantined: int
    today: list[Used]
    budget: int | None
    paused: list[Provider]

    @property
    def stuck(self) -> int:
        """Those that get on only when their time comes, or when somebody does something."""
        return sum(self.states[each] for each in states.STUCK)

    @property
    def tokens_today(self) -> int:
        return sum(each.tokens for each in self.today)

    @property
    def cost_today(self) -> Decimal | None:
        """Unknown where no provider that was called has a price."""
        return reduce(_sum, (each.cost for each in self.today), None)


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
        today=_today(now),
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


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What one day, space, agent and provider had of calls, tokens and money."""

    day: date
    space: str
    agent: str
    provider: str
    calls: int
    failed: int
    input_tokens: int
    output_tokens: int
    cost: Decimal | None


def spent(days: int = 30, *, most: int = SPENT_SHOWN) -> list[Spent]:
    """Calls, tokens and money of the last days, passes' and runs', the newest first. Only what was called counts."""
    since = _midnight(timezone.now()) - timedelta(days=days - 1)
    found: dict[tuple[date, str, str, str], Spent] = {}
    for rows in (DistillationPass.objects.all(), ModelCall.objects.all()):
        for line in _spent(rows.filter(started_at__gte=since), most):
            key = (line.day, line.space, line.agent, line.provider)
            found[key] = _together(found[key], line) if key in found else line
    ordered = sorted(found.values(), key=lambda line: (-line.day.toordinal(), line.space, line.agent, line.provider))
    return ordered[:most]


def spent_by(agent: Agent, days: int = 30) -> tuple[int, Decimal | None]:
    """Tokens and money that an agent's passes and runs used in the last days."""
    since = _midnight(timezone.now()) - timedelta(days=days - 1)
    tokens, money = 0, None
    for rows in (DistillationPass.objects.all(), ModelCall.objects.all()):
        mine = rows.filter(space=agent.space_id, agent=agent, started_at__gte=since)
        found = mine.aggregate(tokens=Sum(F("input_tokens") + F("output_tokens")), money=Sum("cost"))
        tokens, money = tokens + int(found["tokens"] or 0), _sum(money, found["money"])
    return tokens, money


def latest(count: int = 5) -> list[DistillationPass]:
    """The newest passes."""
    return list(DistillationPass.objects.select_related("agent").defer("answer").order_by("-id")[:count])


def held(count: int = 5) -> list[Quarantine]:
    """Messages in quarantine that wait for a decision."""
    rows = Quarantine.objects.filter(state=Quarantine.State.HELD)
    return list(rows.select_related("cursor__session").order_by("-id")[:count])


def _spent(rows: QuerySet[Any], most: int) -> Iterator[Spent]:
    """Sums over passes, or over the calls of runs: their columns are called alike."""
    grouped = (
        rows.exclude(provider_name="")
        .order_by()
        .annotate(day=TruncDate("started_at", tzinfo=UTC))
        .values("day", "provider_name", "space_id", "agent_id")
        .annotate(
            calls=Count("pk"),
            failed=Count("pk", filter=Q(outcome="failed")),
            tokens_in=Sum("input_tokens"),
            tokens_out=Sum("output_tokens"),
            money=Sum("cost"),
        )
        .order_by("-day", "space_id", "agent_id", "provider_name")[:most]
    )
    # Names are looked up for the few sums: joined before, each of a month's calls would bring its own along.
    lines = list(grouped)
    slugs = dict(Space.objects.filter(pk__in={row["space_id"] for row in lines}).values_list("pk", "slug"))
    handles = dict(Agent.objects.filter(pk__in={row["agent_id"] for row in lines}).values_list("pk", "handle"))
    for row in lines:
        yield Spent(
            day=row["day"],
            space=slugs[row["space_id"]],
            agent=handles[row["agent_id"]],
            provider=row["provider_name"],
            calls=row["calls"],
            failed=row["failed"],
            input_tokens=row["tokens_in"],
            output_tokens=row["tokens_out"],
            cost=row["money"],
        )


def _together(one: Spent, other: Spent) -> Spent:
    sums = {name: getattr(one, name) + getattr(other, name) for name in _COUNTED}
    return replace(one, cost=_sum(one.cost, other.cost), **sums)


def _sum(one: Decimal | None, other: Decimal | None) -> Decimal | None:
    """Money together; unknown only where neither is known."""
    known = [money for money in (one, other) if money is not None]
    return sum(known, start=Decimal(0)) if known else None


def _today(now: datetime) -> list[Used]:
    """Who was called since midnight, the most used first. A pass that called nobody is not there."""
    found: dict[str, Used] = {}
    for rows in (DistillationPass.objects.all(), ModelCall.objects.all()):
        called = rows.filter(started_at__gte=_midnight(now)).exclude(provider_name="").order_by()
        sums = called.values("provider_name").annotate(
            calls=Count("pk"),
            failed=Count("pk", filter=Q(outcome="failed")),
            tokens=Sum(F("input_tokens") + F("output_tokens")),
            money=Sum("cost"),
        )
        for row in sums:
            name = row["provider_name"]
            before = found.get(name, Used(provider=name, calls=0, failed=0, tokens=0, cost=None))
            found[name] = Used(
                provider=name,
                calls=before.calls + row["calls"],
                failed=before.failed + row["failed"],
                tokens=before.tokens + row["tokens"],
                cost=_sum(before.cost, row["money"]),
            )
    return sorted(found.values(), key=lambda used: (-used.tokens, used.provider))


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
