"""What the task cluster runs: ids in, a service called. State decides, not the queue."""

from __future__ import annotations

import time

from django.conf import settings
from django.utils import timezone

from distillation.models import Cursor
from distillation.services import coordinator, distilling
from sessions_exec import queue


def coordinate() -> coordinator.Dispatched:
    """Look for what is due."""
    return coordinator.tick()


def distil_agent(agent_id: int) -> None:
    """Distil what is due of one agent, within the task's time; what is left gets a task of its own (A3)."""
    deadline = time.monotonic() + settings.AGENTMEMORY_TASK_TIMEOUT
    due = Cursor.objects.due(timezone.now()).filter(agent_id=agent_id).order_by("due_since", "pk")
    results = distilling.run_many(cursor_ids=list(due.values_list("pk", flat=True)), deadline=deadline)
    if any(result.state == distilling.OUT_OF_TIME for result in results):
        queue.enqueue(coordinator.TASK, agent_id)
