"""What is done again and again, over all apps: by the queue's schedules, or in the ticker where that is too slow."""

from __future__ import annotations

from django.conf import settings

from agentmemory.services import embedding, indexing
from config import runs
from distillation.services import coordinator
from sessions_exec import queue, regular
from sessions_exec.services import delivering, heartbeats, recovery
from sessions_exec.services import runs as task_runs

DAY = 86400.0
# The queue's scheduler looks every 30 seconds and counts in whole minutes.
SHORTEST_SCHEDULE = 60.0
SCHEDULES_LOOK = 30.0
SEARCH_LOOK = 5.0
SEARCH = "config.regular.make_search_ready"
COORDINATES = "finds sessions that are due, and has them distilled"


def schedules() -> list[regular.Schedule]:
    """Regular work as tasks: visible to operators in the queue, made and repaired by code."""
    found = [
        regular.Schedule(
            name="upkeep",
            what="adds up accesses, and tidies tables",
            function="agentmemory.services.upkeep.run",
            every=DAY,
        ),
        regular.Schedule(
            name="consolidation",
            what="merges and links memories that say the same",
            function="agentmemory.services.consolidation.daily",
            every=DAY,
        ),
        regular.Schedule(
            name="answers",
            what="forgets raw answers of models that are old",
            function="distillation.services.retention.forget_answers",
            every=DAY,
        ),
        regular.Schedule(
            name="queue",
            what="removes what the queue keeps of tasks that ended",
            function="sessions_exec.queue.purge",
            every=DAY / 24,
        ),
        regular.Schedule(
            name="webhooks",
            what="forgets deliveries that ended a month ago",
            function="sessions_exec.services.webhooks.forget_old",
            every=DAY,
        ),
    ]
    if settings.AGENTMEMORY_CADENCE >= SHORTEST_SCHEDULE:
        coordinate = "distillation.tasks.coordinate"
        found.append(
            regular.Schedule(
                name=coordinator.NAME, what=COORDINATES, function=coordinate, every=settings.AGENTMEMORY_CADENCE
            )
        )
    return found


def ticks() -> list[regular.Tick]:
    """Regular work in the supervisor itself."""
    found = [
        regular.Tick(
            name="requests",
            what="finds sessions that somebody asked to distil now",
            every=1.0,
            function=coordinator.dispatch_requested,
        ),
        regular.Tick(
            name="recovery",
            what="settles executions that expired",
            every=settings.AGENTMEMORY_RECOVERY_SCAN,
            function=recovery.scan,
        ),
        regular.Tick(
            name="webhook calls",
            what="has webhooks called for which something is due",
            every=1.0,
            function=delivering.dispatch,
        ),
        regular.Tick(
            name="open turns",
            what="goes on with turns that a runner of this service left open",
            every=settings.AGENTMEMORY_RECOVERY_SCAN,
            function=runs.sweep,
        ),
        regular.Tick(
            name="search", what="makes words and vectors ready for search", every=SEARCH_LOOK, function=prepare_search
        ),
        regular.Tick(
            name="schedules",
            what="makes the schedules that are missing, and repairs them",
            every=SCHEDULES_LOOK,
            function=lambda: queue.ensure_schedules(schedules()),
        ),
    ]
    if settings.AGENTMEMORY_CADENCE < SHORTEST_SCHEDULE:
        found.append(
            regular.Tick(
                name=coordinator.NAME, what=COORDINATES, every=settings.AGENTMEMORY_CADENCE, function=coordinator.tick
            )
        )
    return found


def prepare_search() -> str:
    """Have words and vectors made ready for search, where some wait and the queue is empty: all else goes first.

    One such task goes on for many seconds. So no more than half of the workers have one: what comes finds one free.
    """
    if not any(module.is_due() for module in (indexing, embedding)):
        return "nothing to do"
    if queue.waiting().count:
        return "other tasks wait"
    workers = len(heartbeats.living()) * settings.AGENTMEMORY_WORKERS
    if task_runs.count_of(SEARCH) >= max(1, workers // 2):
        return "enough workers are at it"
    queue.enqueue(SEARCH)
    return "1 task"


def make_search_ready() -> str:
    """Make what waits, for a bounded time. Words go first: every search needs them."""
    return ", ".join(module.run() for module in (indexing, embedding))
