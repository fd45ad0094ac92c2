"""What distillation costs: by day, space, agent and provider, as a page, a chart and a file."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from datetime import UTC, date, timedelta
from io import StringIO
from typing import Any

from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone

from agentmemory.console import charts
from distillation.models import DistillationPass
from distillation.services import overview

DAYS = 30
MOST_IN_A_FILE = 50_000
_COLUMNS = ("day", "space", "agent", "provider", "calls", "failed", "input_tokens", "output_tokens", "cost")


def page(request: HttpRequest, site: AdminSite) -> HttpResponse:
    """Tokens and money of the last days, with today's budget."""
    _check(request)
    rows = overview.spent(DAYS)
    standing = overview.standing()
    context = {
        **site.each_context(request),
        "title": "Cost",
        "opts": DistillationPass._meta,
        "rows": rows,
        "cut": len(rows) == overview.SPENT_SHOWN,
        "chart": _chart(rows),
        "total": {
            "calls": sum(row.calls for row in rows),
            "failed": sum(row.failed for row in rows),
            "tokens_in": sum(row.input_tokens for row in rows),
            "tokens_out": sum(row.output_tokens for row in rows),
            "cost": sum((row.cost for row in rows if row.cost is not None), start=charts.NO_MONEY),
        },
        "standing": standing,
    }
    return TemplateResponse(request, "console/cost.html", context)


def as_csv(request: HttpRequest) -> HttpResponse:
    """The same as a file. Handles and names cannot begin a formula: their validators forbid it."""
    _check(request)
    out = StringIO()
    writer = csv.writer(out)
    writer.writerow(_COLUMNS)
    for row in overview.spent(DAYS, most=MOST_IN_A_FILE):
        writer.writerow([getattr(row, column) for column in _COLUMNS])
    answer = HttpResponse(out.getvalue(), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = 'attachment; filename="cost.csv"'
    return answer


def _check(request: HttpRequest) -> None:
    if not request.user.has_perm("distillation.view_distillationpass"):
        raise PermissionDenied


def _chart(rows: list[overview.Spent]) -> dict[str, Any]:
    """Tokens a day, in and out."""
    tokens: defaultdict[tuple[date, str], int] = defaultdict(int)
    for row in rows:
        tokens[row.day, "in"] += row.input_tokens
        tokens[row.day, "out"] += row.output_tokens
    today = timezone.now().astimezone(UTC).date()
    days = [today - timedelta(days=back) for back in range(DAYS - 1, -1, -1)]
    data = charts.stacked(days, ("in", "out"), tokens)
    return {"data": json.dumps(data), "options": json.dumps(charts.OPTIONS)}
