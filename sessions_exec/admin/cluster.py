"""The task cluster: who is alive, what runs, what waits, what was done when."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agentmemory.admin.base import ReadOnlyAdmin
from agentmemory.console import figures, labels
from sessions_exec import queue
from sessions_exec.admin import task_words
from sessions_exec.models import Heartbeat, TaskRun, Tick
from sessions_exec.services import heartbeats

RUNS_SHOWN = 100
UPCOMING_SHOWN = 20


@admin.register(Heartbeat)
class HeartbeatAdmin(ReadOnlyAdmin[Heartbeat]):
    """One page of the whole: clusters, tasks in hand and those that wait, regular work."""

    fields = ("worker", "state", "host", "pid", "processes", "since", "restarts", "last_restart", "deaths")
    readonly_fields = fields

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": "Task cluster",
            "silent": not heartbeats.alive(),
            "clusters": [
                {"row": row, "state": self.state(row), "restart": self.last_restart(row), "death": _death(row)}
                for row in Heartbeat.objects.order_by("-beat_at")[:RUNS_SHOWN]
            ],
            "waiting": queue.waiting(),
            "upcoming": [
                {"said": task_words.said(task.function, task.argument) if task.function else "", "since": task.since}
                for task in queue.upcoming(UPCOMING_SHOWN)
            ],
            "runs": [
                {"said": task_words.said(run.function, run.argument), "row": run}
                for run in TaskRun.objects.order_by("started_at")[:RUNS_SHOWN]
            ],
            "ticks": list(Tick.objects.order_by("name")[:RUNS_SHOWN]),
        }
        return TemplateResponse(request, "console/cluster.html", context)

    @admin.display(description="State", ordering="beat_at")
    def state(self, heartbeat: Heartbeat) -> SafeString:
        alive = heartbeat.beat_at > timezone.now() - timedelta(seconds=heartbeats.DEAD_AFTER)
        return labels.with_line("alive" if alive else "silent", _beat(heartbeat))

    @admin.display(description="Running since", ordering="started_at")
    def since(self, heartbeat: Heartbeat) -> SafeString:
        return figures.when(heartbeat.started_at)

    @admin.display(description="Last restart by the watchdog")
    def last_restart(self, heartbeat: Heartbeat) -> SafeString | str:
        if heartbeat.last_restart_at is None:
            return "never"
        label = labels.with_line("recovered", heartbeat.last_restart_reason)
        return format_html("{} {}", figures.when(heartbeat.last_restart_at), label)


def _death(heartbeat: Heartbeat) -> SafeString | str:
    if heartbeat.last_death_at is None:
        return "never"
    function, _, argument = heartbeat.last_death_task.partition(" ")
    return format_html("{} {}", figures.when(heartbeat.last_death_at), task_words.said(function, argument))


def _beat(heartbeat: Heartbeat) -> str:
    return f"last beat {figures.duration(timezone.now() - heartbeat.beat_at)} ago"
