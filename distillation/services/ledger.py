"""What distillation used and cost, by day, space, agent and provider, failed calls included (D25)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal

from django.db.models import Count, F, Q, Sum
from django.db.models.functions import Coalesce, TruncDate

from agentmemory.models import Space
from distillation.models import DistillationPass

By = Literal["day", "space", "agent", "provider"]

_COLUMNS: dict[By, Any] = {
    "day": TruncDate("started_at"),
    "space": F("space__slug"),
    "agent": F("agent__handle"),
    "provider": F("provider_name"),
}


@dataclass(frozen=True, kw_only=True)
class Line:
    """The sum of the passes that share the values of `by`. `cost` is in US dollars; `unpriced` calls have none."""

    by: dict[str, str | date]
    input_tokens: int
    output_tokens: int
    cost: Decimal
    calls: int
    failed: int
    unpriced: int


def lines(*, by: Sequence[By], since: datetime, until: datetime, space: Space | None = None) -> list[Line]:
    """One line for each combination of `by` with calls from `since` up to `until`, the newest day first."""
    calls = DistillationPass.objects.filter(started_at__gte=since, started_at__lt=until).exclude(provider_name="")
    if space is not None:
        calls = calls.filter(space=space)
    names = [f"by_{name}" for name in by]
    grouped = (
        calls.annotate(**{f"by_{name}": _COLUMNS[name] for name in by})
        .values(*names)
        .annotate(
            tokens_in=Coalesce(Sum("input_tokens"), 0),
            tokens_out=Coalesce(Sum("output_tokens"), 0),
            money=Coalesce(Sum("cost"), Decimal(0)),
            made=Count("pk"),
            failures=Count("pk", filter=Q(outcome=DistillationPass.Outcome.FAILED)),
            without_price=Count("pk", filter=Q(cost__isnull=True)),
        )
    )
    order = [f"-{name}" if name == "by_day" else name for name in names]
    return [_line(row, by) for row in grouped.order_by(*order)]


def _line(row: dict[str, Any], by: Sequence[By]) -> Line:
    return Line(
        by={name: row[f"by_{name}"] for name in by},
        input_tokens=row["tokens_in"],
        output_tokens=row["tokens_out"],
        cost=row["money"],
        calls=row["made"],
        failed=row["failures"],
        unpriced=row["without_price"],
    )
