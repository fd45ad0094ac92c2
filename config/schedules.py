"""The page of what is done again and again: made and repaired by code, so it is for looking at alone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.safestring import SafeString

from agentmemory.admin.base import ReadOnlyAdmin
from agentmemory.console import figures, labels, links
from config import regular, runs
from sessions_exec import queue
from sessions_exec.admin import task_words
from sessions_exec.models import Tick
from sessions_exec.regular import Schedule
from sessions_exec.regular import Tick as Ticker
from sessions_exec.services import heartbeats

LATE = 60.0
"""Seconds that regular work may be behind its time before the page says so."""


@admin.register(Tick)
class ScheduleAdmin(ReadOnlyAdmin[Tick]):
    """One page: the queue's schedules, and what the workers' ticker does itself."""

    fields = ("name", "at", "outcome")
    readonly_fields = fields

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        schedules, ticks = regular.schedules(), regular.ticks()
        done = Tick.objects.in_bulk([*(each.name for each in schedules), *(each.name for each in ticks)])
        coming = queue.next_runs(schedules)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": "Schedules",
            "silent": not heartbeats.alive(),
            "schedules": [
                _row(each, done, _of_schedule(each, coming)) | {"next": coming.get(each.name)} for each in schedules
            ],
            "ticks": [_row(each, done, _of_tick(each, done)) for each in ticks],
            "unsound": queue.unsound_schedules(),
        }
        return TemplateResponse(request, "console/schedules.html", context)


def _task(function: str, argument: str) -> SafeString | str | None:
    """What regular work does, and the runs of sessions."""
    if function == runs.TASK:
        return links.anchor(links.session(argument), "answers what was sent to a session")
    return next((each.what for each in regular.schedules() if each.function == function), None)


task_words.says.append(_task)


def _row(each: Schedule | Ticker, done: Mapping[str, Tick], state: SafeString) -> dict[str, Any]:
    last = done.get(each.name)
    return {
        "name": each.name,
        "what": each.what,
        "every": figures.duration(each.every),
        "state": state,
        "last": last.at if last else None,
        "outcome": last.outcome if last else "",
    }


def _of_schedule(each: Schedule, coming: Mapping[str, datetime]) -> SafeString:
    at = coming.get(each.name)
    if at is None:
        return labels.with_line("missing", "a running worker makes it within half a minute")
    late = timezone.now() - at > timedelta(seconds=LATE)
    return labels.label("late" if late else "ready")


def _of_tick(each: Ticker, done: Mapping[str, Tick]) -> SafeString:
    last = done.get(each.name)
    if last is None:
        return labels.label("never done")
    late = timezone.now() - last.at > timedelta(seconds=2 * each.every + LATE)
    return labels.label("late" if late else "ready")
