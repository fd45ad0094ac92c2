"""Who may act now, what waits to be said, what happened; who is told of it; and the task cluster."""

from __future__ import annotations

from sessions_exec.models.calls import ModelCall
from sessions_exec.models.cluster import Heartbeat, TaskRun, Tick
from sessions_exec.models.executions import Execution, Input, Recovery
from sessions_exec.models.log import EventCounter, SessionEvent
from sessions_exec.models.webhooks import Delivery, Webhook

__all__ = [
    "Delivery",
    "EventCounter",
    "Execution",
    "Heartbeat",
    "Input",
    "ModelCall",
    "Recovery",
    "SessionEvent",
    "TaskRun",
    "Tick",
    "Webhook",
]
