"""What distillation costs: by day, space, agent and provider, as a page, a chart and a file."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, date, timedelta
from io import StringIO
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.safestring import SafeString

from agentmemory.console import charts, figures, links
from agentmemory.models import Space
from distillation.models import DistillationPass
from distillation.services import gates, spending
from distillation.services.spending import Line, Usage

DAYS = 30
MOST_IN_A_FILE = 50_000
SHOWN = 1_000
PARTS_SHOWN = 10
SPACES_SHOWN = 100
_NAMES = ("day", "space", "agent", "provider")
_FIGURES = ("calls", "failed", "input_tokens", "output_tokens", "cost")


def page(request: HttpRequest, site: AdminSite) -> HttpResponse:
    """Tokens and money of the last days: where they went, and how today stands against the budgets."""
    _check(request)
    rows = spending.lines(days=DAYS, most=MOST_IN_A_FILE)
    now = timezone.now().astimezone(UTC).date()
    today = [row for row in rows if row.day == now]
    whole = spending.whole(row.usage for row in rows)
    context = {
        **site.each_context(request),
        "title": "Cost",
        "opts": DistillationPass._meta,
        "rows": rows[:SHOWN],
        "cut": len(rows) > SHOWN,
        "chart": _chart(rows),
        "whole": whole,
        "parts": [
            _part("Space", rows, whole, lambda row: row.space, lambda name: _passes(space=name)),
            _part(
                "Agent",
                rows,
                whole,
                lambda row: f"{row.agent} · {row.space}",
                lambda name: _passes(agent=name.partition(" ")[0], space=name.rpartition(" ")[2]),
            ),
            _part("Provider", rows, whole, lambda row: row.provider, lambda name: _passes(provider=name)),
        ],
        "today": spending.whole(row.usage for row in today),
        "budgets": _budgets(today),
        "more_spaces": Space.objects.active().order_by("slug")[SPACES_SHOWN : SPACES_SHOWN + 1].exists(),
    }
    return TemplateResponse(request, "console/cost.html", context)


def _part(
    title: str,
    rows: list[Line],
    whole: Usage,
    name: Callable[[Line], str],
    link: Callable[[str], str],
) -> dict[str, Any]:
    """The largest parts of the whole, by money where any is known, else by tokens; what is left over in one line."""
    in_money = bool(whole.cost)
    ordered = sorted(
        spending.together(rows, name).items(), key=lambda item: (-_weight(item[1], in_money=in_money), item[0])
    )
    lines = [
        {"name": called, "link": link(called), "sum": each, "share": _share(each, whole, in_money=in_money)}
        for called, each in ordered[:PARTS_SHOWN]
    ]
    left = ordered[PARTS_SHOWN:]
    if left:
        rest = spending.whole(each for _, each in left)
        lines.append({"name": f"{len(left)} more", "sum": rest, "share": _share(rest, whole, in_money=in_money)})
    return {"title": title, "lines": lines}


def _weight(each: Usage, *, in_money: bool) -> float:
    return float(each.cost or 0) if in_money else float(each.tokens)


def _share(each: Usage, whole: Usage, *, in_money: bool) -> SafeString:
    part, of = _weight(each, in_money=in_money), _weight(whole, in_money=in_money)
    return figures.bar(part, of, text=f"{100 * part / of:.0f}\u202f%" if of else "")


def _passes(**narrowed: str) -> str:
    return links.listing("distillation", "distillationpass", urlencode(narrowed))


def _budgets(today: Iterable[Line]) -> list[dict[str, Any]]:
    """Each space that has a budget, with a bar of what it used today."""
    used = spending.together(today, lambda row: row.space)
    limits = (
        (space.slug, gates.daily_budget(space)) for space in Space.objects.active().order_by("slug")[:SPACES_SHOWN]
    )
    return [
        {"space": slug, "bar": _against(used.get(slug, Usage()).tokens, limit)}
        for slug, limit in limits
        if limit is not None
    ]


def _against(tokens: int, budget: int) -> SafeString:
    text = f"{figures.number(tokens)} of {figures.number(budget)}"
    return figures.bar(tokens, budget, text=text, tone="red" if tokens >= budget else "blue")


def as_csv(request: HttpRequest) -> HttpResponse:
    """The same as a file. Handles and names cannot begin a formula: their validators forbid it."""
    _check(request)
    out = StringIO()
    writer = csv.writer(out)
    writer.writerow([*_NAMES, *_FIGURES])
    for row in spending.lines(days=DAYS, most=MOST_IN_A_FILE):
        usage = [getattr(row.usage, figure) for figure in _FIGURES]
        writer.writerow([getattr(row, name) for name in _NAMES] + usage)
    answer = HttpResponse(out.getvalue(), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = 'attachment; filename="cost.csv"'
    return answer


def _check(request: HttpRequest) -> None:
    if not request.user.has_perm("distillation.view_distillationpass"):
        raise PermissionDenied


def _chart(rows: list[Line]) -> dict[str, Any]:
    """Tokens a day, in and out."""
    tokens: defaultdict[tuple[date, str], int] = defaultdict(int)
    for row in rows:
        tokens[row.day, "in"] += row.usage.input_tokens
        tokens[row.day, "out"] += row.usage.output_tokens
    today = timezone.now().astimezone(UTC).date()
    days = [today - timedelta(days=back) for back in range(DAYS - 1, -1, -1)]
    data = charts.stacked(days, ("in", "out"), tokens)
    return {"data": json.dumps(data), "options": json.dumps(charts.OPTIONS)}
