"""The start page: whether everything moves, and what it takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.core.cache import cache
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from agentmemory.console import charts, figures, links, permissions
from agentmemory.services import inspection
from config import attention, health
from distillation.services import overview, states
from sessions_exec import queue
from sessions_exec.models import Heartbeat, TaskRun, Tick
from sessions_exec.services import heartbeats
from sessions_exec.services import standing as execution

DAYS = 30
# Charts read a month: what yesterday brought may be this many seconds behind, and today's part is as new as the page.
YESTERDAY_KEPT = 60
DAY = 86_400


def start(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """What the start page shows this operator, by what they may see."""
    context |= {"title": "Start"}
    if not request.user.has_perm("distillation.view_cursor"):
        return context
    standing, private = overview.standing(), permissions.reads_private(request)
    # As the page of costs has it, to which they lead.
    costs = request.user.has_perm("distillation.view_distillationpass")
    context |= {
        "overview": True,
        "silent": not heartbeats.alive(),
        "figures": [each for each in _figures(standing, private=private) if costs or each["id"] != "tokens"],
        "distillation": _distillation(standing),
        "executions": _executions() if request.user.has_perm("sessions_exec.view_execution") else (),
        "cluster": _cluster() if request.user.has_perm("sessions_exec.view_heartbeat") else None,
        "costs": costs,
        "today": standing.today.items() if costs else (),
        "charts": _charts(),
        "needs": attention.needs(request, standing),
        "latest": attention.latest(request),
        "shared_only": not private,
    }
    return context


def _figures(standing: overview.Standing, *, private: bool) -> list[dict[str, Any]]:
    spent = standing.budget is not None and standing.tokens_today >= standing.budget
    return [
        _oldest(standing, private=private),
        {
            "id": "stuck",
            "title": "Backing off and blocked",
            "value": _least(standing.stuck, standing),
            "line": ", ".join(f"{standing.states[each]} {_words(each)}" for each in states.STUCK),
            "url": _waiting("stuck"),
            "tone": "amber" if standing.stuck else "",
        },
        {
            "id": "quarantined",
            "title": "Quarantined",
            "value": _most(standing.quarantined, overview.MOST),
            "line": "messages that failed alone, and wait for a decision" if standing.quarantined else "no message",
            "url": links.listing("distillation", "quarantine", "state__exact=held"),
            "tone": "red" if standing.quarantined else "",
        },
        {
            "id": "tokens",
            "title": "Tokens today",
            "value": figures.number(standing.tokens_today),
            "line": _paid(standing),
            "bar": figures.bar(
                standing.tokens_today,
                standing.budget,
                text=f"of {figures.number(standing.budget)}",
                tone="red" if spent else "blue",
            )
            if standing.budget
            else "",
            "url": reverse("admin:distillation_cost"),
            "tone": "red" if spent else "",
        },
    ]


def _paid(standing: overview.Standing) -> str:
    """What today cost, as far as that is known."""
    money = "" if standing.cost_today is None else figures.money(standing.cost_today)
    budget = "" if standing.budget else "no daily budget is set"
    return ", ".join(filter(None, (money, budget)))


def _oldest(standing: overview.Standing, *, private: bool) -> dict[str, Any]:
    cursor = standing.oldest
    shown: dict[str, Any] = {"id": "oldest", "title": "Oldest turn that waits", "url": _waiting("behind"), "tone": ""}
    if cursor is None or cursor.due_since is None:
        return shown | {"value": "none", "line": "everything is distilled to its last finished turn"}
    now = timezone.now()
    state = states.describe(cursor, now, private=private)
    return shown | {
        "value": figures.duration(now - cursor.due_since),
        "line": f"{cursor.agent.handle} · {cursor.session.name}: {_words(state.name)}, {state.line}",
        "url": links.change("distillation", "cursor", cursor.pk),
        "tone": {"backing_off": "amber", "blocked": "red"}.get(state.name, "blue"),
    }


def _distillation(standing: overview.Standing) -> list[dict[str, Any]]:
    """The sessions that are behind, by state, and what is in quarantine: each number with the list behind it."""
    shown = [
        {"state": _words(each), "text": "", "value": _least(standing.states[each], standing), "url": _waiting(each)}
        for each in states.WORK
    ]
    held = links.listing("distillation", "quarantine", "state__exact=held")
    shown.append({"state": "quarantined", "text": "", "value": _most(standing.quarantined, overview.MOST), "url": held})
    return shown


def _executions() -> list[dict[str, Any]]:
    """How execution stands, each state with its number and the list behind it."""
    found = execution.figures()
    lists = (
        ("live", "", found.live, links.listing("sessions_exec", "execution", "state=live")),
        ("expired", "", found.expired, links.listing("sessions_exec", "execution", "state=expired")),
        ("recovered", "recovered today", found.recovered, links.listing("sessions_exec", "recovery")),
        ("waits", "inputs wait", found.waiting, links.listing("sessions_exec", "input")),
    )
    return [
        {"state": state, "text": text, "value": _most(count, execution.MOST), "url": url}
        for state, text, count, url in lists
    ]


def _cluster() -> dict[str, Any]:
    """Whether the work is done: the newest heartbeat, what the queue holds, and when sessions were looked at."""
    waiting = queue.waiting()
    return {
        "beat": Heartbeat.objects.order_by("-beat_at").first(),
        "waiting": waiting,
        "more": waiting.count == queue.COUNTED,
        "running": TaskRun.objects.values("pk")[: overview.MOST].count(),
        "coordinator": Tick.objects.filter(name=health.COORDINATOR).first(),
    }


def _waiting(chosen: str) -> str:
    return links.listing("distillation", "cursor", f"waiting={chosen}")


def _words(state: str) -> str:
    return state.replace("_", " ")


def _most(count: int, most: int) -> str:
    return f"{most}+" if count > most else figures.number(count)


def _least(count: int, standing: overview.Standing) -> str:
    """A number of sessions that are behind: a least where not all of them were looked at."""
    all_seen = sum(standing.states.values()) < overview.MOST_BEHIND
    return figures.number(count) + ("" if all_seen or not count else "+")


def _charts() -> list[dict[str, Any]]:
    return [
        _chart("memories", "Memories by origin", _per_day(inspection.written_per_day), ("curated", "distilled")),
        _chart("passes", "Passes by outcome", _per_day(overview.passes_per_day), ("applied", "empty", "failed")),
    ]


PerDay = Callable[[datetime, datetime | None], dict[tuple[date, str], int]]


def _per_day(count: PerDay) -> dict[tuple[date, str], int]:
    """The last days. Those before yesterday are settled: they are counted once a day, not with every page."""
    midnight = timezone.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    begin, settled = midnight - timedelta(days=DAYS - 1), midnight - timedelta(days=1)
    key = f"console:{count.__name__}:{midnight:%Y-%m-%d}"
    before = cache.get_or_set(key, lambda: count(begin, settled), DAY) or {}
    yesterday = cache.get_or_set(f"{key}:yesterday", lambda: count(settled, midnight), YESTERDAY_KEPT) or {}
    return before | yesterday | count(midnight, None)


def _chart(name: str, title: str, counts: Mapping[tuple[date, str], int], kinds: Sequence[str]) -> dict[str, Any]:
    """A stacked chart of the last days, and its table: the newest day first, days without anything left out."""
    today = timezone.now().astimezone(UTC).date()
    days = [today - timedelta(days=back) for back in range(DAYS - 1, -1, -1)]
    rows = [(day, [counts.get((day, kind), 0) for kind in kinds]) for day in reversed(days)]
    return {
        "id": name,
        "title": title,
        "kinds": kinds,
        "data": json.dumps(charts.stacked(days, kinds, counts)),
        "options": json.dumps(charts.OPTIONS),
        "rows": [row for row in rows if any(row[1])],
    }
