"""A dry run as a page: what a run would read and cost, session by session, and in total."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import urlencode

from agentmemory.console import charts, permissions
from distillation.models import Cursor
from distillation.services import preview

_NAMES = ("space", "agent", "session")


def of(cursor: Cursor) -> str:
    """The page for one session."""
    named = {"space": cursor.space.slug, "agent": cursor.agent.handle, "session": cursor.session.name}
    return f"{reverse('admin:distillation_estimate')}?{urlencode(named)}"


def page(request: HttpRequest, site: AdminSite) -> HttpResponse:
    """What is due, narrowed by `?space=`, `?agent=` and `?session=`."""
    if not request.user.has_perm("distillation.view_cursor"):
        raise PermissionDenied
    named = {name: request.GET.get(name, "").replace("\0", "").strip()[:200] for name in _NAMES}
    rows, more = preview.by_session(space=named["space"], agent=named["agent"], session=named["session"])
    context = {
        **site.each_context(request),
        "title": "What a run would read and cost",
        "opts": Cursor._meta,
        "named": named,
        "rows": rows,
        "more": more,
        "cut": more or any(row.more for row in rows),
        "total": _total(rows),
        "private": permissions.reads_private(request),
        "answer_tokens": preview.ANSWER_TOKENS,
    }
    return TemplateResponse(request, "console/estimate.html", context)


def _total(rows: list[preview.Estimate]) -> dict[str, Any]:
    sums = {name: sum(getattr(row, name) for row in rows) for name in ("windows", "messages", "characters", "tokens")}
    known = [row.cost for row in rows if row.cost is not None]
    return {
        **sums,
        "cost": sum(known, start=charts.NO_MONEY),
        "unknown": len(known) < len(rows),
        "about": any(row.about for row in rows),
    }
