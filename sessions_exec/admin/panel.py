"""What a session's page says of its execution: its state on top, and what waits."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.safestring import SafeString

from agentmemory.admin import sessions
from agentmemory.console import links
from agentmemory.models import Session
from sessions_exec.admin import executions, sending, waiting
from sessions_exec.services import standing


def _panel(request: HttpRequest, session: Session) -> sessions.Panel | None:
    """Its state and what waits, where there is any of it; and the box to send from, for who may."""
    if not request.user.has_perm("sessions_exec.view_execution"):
        return None
    row: Any = executions.known().filter(pk=session.pk).first()
    now = row.now if row is not None else timezone.now()
    inputs = waiting.shown(request, session, row, now)
    foot = sending.foot(request, session, row)
    if row is None and not inputs["waiting"]:
        return sessions.Panel(foot=foot)
    context = {
        "execution": row,
        "state": standing.of(row, now) if row is not None else "idle",
        "interruption": executions.interruption(row) if row is not None else "",
        "left": executions.time_left(row) if row is not None else "",
        "acts": _acts(request, row),
        **inputs,
    }
    return sessions.Panel(html=SafeString(render_to_string("console/execution_panel.html", context)), foot=foot)


def _acts(request: HttpRequest, row: Any) -> list[dict[str, Any]]:
    """What may be done to the execution, each leading back to the conversation."""
    if row is None or not request.user.has_perm("sessions_exec.change_execution"):
        return []
    back = links.session(row.pk)
    return [
        {
            "name": act.name,
            "label": act.label,
            "danger": act.danger,
            "url": links.act("sessions_exec", "execution", act.name, [row.pk], back),
        }
        for act in executions.ACTS
        if act.offered(row)
    ]


sessions.panels.append(_panel)
