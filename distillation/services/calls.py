"""What was asked of providers in the last day, by passes and by runs, and which of them answer no more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Max, Q, QuerySet, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone

from agentmemory.models import Provider
from agentmemory.services import providers
from distillation.models import DistillationPass
from distillation.services import failures, passes, providing
from sessions_exec.models import ModelCall

DAY = timedelta(days=1)
IN_A_ROW = 3
"""So many failed calls one after another, and a person should look."""
MOST = 50
"""Providers whose last errors are looked up."""

_GOT_THROUGH = Q(outcome__in=["applied", "empty", "answered"])
# The end of a pass or a run that says nothing about who was called.
_NOT_THE_CALLS = ("stopped", "lease_lost", "all_refused", "fault", failures.KILLED, passes.ERASED)
_FAILED = Q(outcome="failed") & ~Q(failure__in=_NOT_THE_CALLS)


@dataclass(frozen=True, kw_only=True)
class Calls:
    """What was asked of one provider, and how its newest calls ended.

    `in_a_row` are those that failed since the last one that got through, a test included; `error` is the first line of
    the newest of them, `kind` the word for it.
    """

    made: int = 0
    failed: int = 0
    tokens: int = 0
    got_through: datetime | None = None
    in_a_row: int = 0
    error: str = ""
    kind: str = ""
    failed_at: datetime | None = None

    @property
    def failing(self) -> bool:
        """Whether its last calls failed: three or more, or all that there were."""
        return self.in_a_row >= IN_A_ROW or (self.in_a_row > 0 and self.got_through is None)

    def line(self, *, private: bool) -> str:
        """How many failed in a row, and the first line of what the last one said: `said`."""
        how_many = f"its last {self.in_a_row} calls" if self.in_a_row > 1 else "its last call"
        alone = "" if self.got_through else ", none got through in a day"
        return f"{how_many} failed{alone}: {self.said(private=private)}"

    def said(self, *, private: bool) -> str:
        """The last error; its kind alone to who may not read what is private, since it may quote what was sent."""
        return (private and self.error) or self.kind


def in_the_last_day() -> dict[int, Calls]:
    """By the provider's primary key; a provider that was not asked is missing."""
    since = timezone.now() - DAY
    found: dict[int, Calls] = {}
    tables: tuple[QuerySet[Any], ...] = (
        DistillationPass.objects.filter(started_at__gte=since, provider__isnull=False).order_by(),
        ModelCall.objects.filter(started_at__gte=since, provider__isnull=False).order_by(),
    )
    for rows in tables:
        for pk, made, failed, tokens, got in _counted(rows):
            so_far = found.get(pk, Calls())
            found[pk] = Calls(
                made=so_far.made + made,
                failed=so_far.failed + failed,
                tokens=so_far.tokens + tokens,
                got_through=max(filter(None, (so_far.got_through, got)), default=None),
            )
    return found | _failing({pk: calls for pk, calls in found.items() if calls.failed}, tables)


def failing(calls: dict[int, Calls] | None = None) -> list[tuple[Provider, Calls]]:
    """Providers that may be called, and whose last three calls or more all failed: the newest failure first."""
    asked = in_the_last_day() if calls is None else calls
    broken = {pk: each for pk, each in asked.items() if each.in_a_row >= IN_A_ROW}
    rows = Provider.objects.filter(pk__in=broken, enabled=True)[:MOST]
    now = timezone.now()
    found = [(row, broken[row.pk]) for row in rows if not providers.pause_line(row, now=now, private=False)]
    return sorted(found, key=lambda pair: pair[1].failed_at or now, reverse=True)


def _counted(rows: QuerySet[Any]) -> Iterable[tuple[int, int, int, int, datetime | None]]:
    found: Iterable[tuple[int, int, int, int, datetime | None]] = rows.values_list("provider").annotate(
        made=Count("pk"),
        failed=Count("pk", filter=Q(outcome="failed")),
        tokens=Coalesce(Sum("input_tokens"), 0) + Coalesce(Sum("output_tokens"), 0),
        got=Max("started_at", filter=_GOT_THROUGH),
    )
    return found


def _failing(suspects: dict[int, Calls], tables: Iterable[QuerySet[Any]]) -> dict[int, Calls]:
    """Of these, what failed since the last call that got through. An operator's test that did ends it as well."""
    chosen = dict(sorted(suspects.items())[:MOST])
    if not chosen:
        return {}
    tested = providing.answered_tests(chosen)
    for pk, at in tested.items():
        got = chosen[pk].got_through
        chosen[pk] = replace(chosen[pk], got_through=max(got, at) if got else at)
    since = Q(pk__in=[])
    for pk, calls in chosen.items():
        since |= Q(provider=pk, started_at__gt=calls.got_through) if calls.got_through else Q(provider=pk)
    for rows in tables:
        failed = rows.filter(since, _FAILED)
        counts = {
            pk: (count, last) for pk, count, last in failed.values_list("provider").annotate(Count("pk"), Max("pk"))
        }
        newest = rows.model._default_manager.filter(pk__in=[last for _, last in counts.values()])
        for pk, at, error, kind in newest.values_list("provider", "started_at", "error", "failure"):
            so_far = chosen[pk]
            chosen[pk] = replace(so_far, in_a_row=so_far.in_a_row + counts[pk][0])
            if so_far.failed_at is None or at > so_far.failed_at:
                chosen[pk] = replace(chosen[pk], failed_at=at, error=_first_line(error), kind=kind)
    return chosen


def _first_line(error: str) -> str:
    return error.strip().partition("\n")[0][:200]
