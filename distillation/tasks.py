"""What the task cluster runs: ids in, a service called. State decides, not the queue."""

from __future__ import annotations

import time

from django.conf import settings
from django.utils import timezone

from distillation.models import Cursor
from distillation.services import coordinator, distilling, side_by_side
from sessions_exec import queue


def coordinate() -> coordinator.Dispatched:
    """Look for what is due."""
    return coordinator.tick()


def distil_agent(agent_id: int) -> None:
    """Distil what is due of one agent, and beside it what is marked of others, within the task's time (A3).

    One task an agent bounds what is enqueued, not what runs: a task that finds its agent's work done ends at once.
    What is left when the time is over gets a task of its own.
    """
    deadline = time.monotonic() + settings.AGENTMEMORY_TASK_TIMEOUT
    due = Cursor.objects.due(timezone.now()).filter(agent_id=agent_id).order_by("due_since", "pk")
    own = list(due.values_list("pk", flat=True))
    results = side_by_side.run(cursor_ids=own, more=coordinator.marked, deadline=deadline)
    left = [result.cursor_id for result in results if result.state == distilling.OUT_OF_TIME]
    agents = Cursor.objects.filter(pk__in=left).values_list("agent_id", flat=True).distinct()
    queue.enqueue_many(coordinator.TASK, sorted(agents))
