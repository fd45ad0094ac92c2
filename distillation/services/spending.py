"""What models had of tokens and money, distillation's passes and the calls of runs together (D25)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from operator import add
from typing import Any

from django.db.models import Count, Q, QuerySet, Sum
from django.db.models.functions import TruncDate
from django.utils import timezone

from agentmemory.models import Agent, Space
from distillation.models import DistillationPass
from sessions_exec.models import ModelCall

GONE = "gone"


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Calls, tokens and money (US dollars; unknown where nobody who was called has a price)."""

    calls: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal | None = None

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        known = [cost for cost in (self.cost, other.cost) if cost is not None]
        return Usage(
            calls=self.calls + other.calls,
            failed=self.failed + other.failed,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost=sum(known, start=Decimal(0)) if known else None,
        )


@dataclass(frozen=True, kw_only=True)
class Line:
    """What one day (UTC), space, agent and provider had."""

    day: date
    space: str
    agent: str
    provider: str
    usage: Usage

    @property
    def name(self) -> tuple[date, str, str, str]:
        return self.day, self.space, self.agent, self.provider


# The columns of passes and of runs' calls are called alike.
_SUMS = {
    "n_calls": Count("pk"),
    "n_failed": Count("pk", filter=Q(outcome="failed")),
    "tokens_in": Sum("input_tokens"),
    "tokens_out": Sum("output_tokens"),
    "money": Sum("cost"),
}


def lines(*, days: int, most: int) -> list[Line]:
    """The last days, the newest first, `most` of them. Only what was called counts."""
    found: dict[tuple[date, str, str, str], Line] = {}
    for rows in _since(midnight(timezone.now()) - timedelta(days=days - 1)):
        for line in _lines(rows, most):
            before = found.get(line.name)
            found[line.name] = line if before is None else _merged(before, line)
    ordered = sorted(found.values(), key=lambda line: (-line.day.toordinal(), *line.name[1:]))
    return ordered[:most]


def together(lines: Iterable[Line], name: Callable[[Line], str]) -> dict[str, Usage]:
    """What lines of the same name come to."""
    found: defaultdict[str, Usage] = defaultdict(Usage)
    for line in lines:
        found[name(line)] += line.usage
    return dict(found)


def whole(parts: Iterable[Usage]) -> Usage:
    """All of them together."""
    return reduce(add, parts, Usage())


def today() -> dict[str, Usage]:
    """By provider since midnight (UTC), the most used first."""
    found: defaultdict[str, Usage] = defaultdict(Usage)
    for rows in _since(midnight(timezone.now())):
        for row in rows.values("provider_name").annotate(**_SUMS):
            found[row["provider_name"]] += _usage(row)
    return dict(sorted(found.items(), key=lambda item: (-item[1].tokens, item[0])))


def of(agent: Agent, *, days: int) -> Usage:
    """What an agent's passes and runs had in the last days."""
    since = midnight(timezone.now()) - timedelta(days=days - 1)
    return whole(_usage(rows.filter(space=agent.space_id, agent=agent).aggregate(**_SUMS)) for rows in _since(since))


def midnight(now: datetime) -> datetime:
    """When the UTC day of a moment began."""
    return now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _since(moment: datetime) -> Iterator[QuerySet[Any]]:
    for rows in (DistillationPass.objects.all(), ModelCall.objects.all()):
        yield rows.filter(started_at__gte=moment).exclude(provider_name="").order_by()


def _lines(rows: QuerySet[Any], most: int) -> Iterator[Line]:
    grouped = (
        rows.annotate(day=TruncDate("started_at", tzinfo=UTC))
        .values("day", "provider_name", "space_id", "agent_id")
        .annotate(**_SUMS)
        .order_by("-day", "space_id", "agent_id", "provider_name")[:most]
    )
    # Names are looked up for the few sums: joined before, each of a month's calls would bring its own along.
    found = list(grouped)
    slugs = dict(Space.objects.filter(pk__in={row["space_id"] for row in found}).values_list("pk", "slug"))
    handles = dict(Agent.objects.filter(pk__in={row["agent_id"] for row in found}).values_list("pk", "handle"))
    for row in found:
        # One may be erased between the two questions.
        space, agent = slugs.get(row["space_id"], GONE), handles.get(row["agent_id"], GONE)
        yield Line(day=row["day"], space=space, agent=agent, provider=row["provider_name"], usage=_usage(row))


def _merged(one: Line, other: Line) -> Line:
    return Line(day=one.day, space=one.space, agent=one.agent, provider=one.provider, usage=one.usage + other.usage)


def _usage(row: dict[str, Any]) -> Usage:
    return Usage(
        calls=row["n_calls"],
        failed=row["n_failed"],
        input_tokens=row["tokens_in"] or 0,
        output_tokens=row["tokens_out"] or 0,
        cost=row["money"],
    )
