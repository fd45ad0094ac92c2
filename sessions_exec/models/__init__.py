"""Who may act now, what waits to be said, what happened; and the task cluster."""

from __future__ import annotations

from sessions_exec.models.cluster import Heartbeat, TaskRun, Tick
from sessions_exec.models.executions import Execution, Input, Recovery
from sessions_exec.models.log import EventCounter, SessionEvent

__all__ = ["EventCounter", "Execution", "Heartbeat", "Input", "Recovery", "SessionEvent", "TaskRun", "Tick"]
