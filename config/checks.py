"""Checks at start-up: settings whose combination would break a guarantee (A3, D7, D14)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps.config import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, register

# A renewal must fit into a lease several times, and a watchdog must not fire between two looks at the queue.
SHORTEST_LEASE = 0.05


@register()
def check_settings(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Sequence[CheckMessage]:
    """Every rule that spans settings; a single bad value was already refused when it was read."""
    return [*_timing(), *_queue()]


def _timing() -> list[CheckMessage]:
    found: list[CheckMessage] = []
    if not settings.AGENTMEMORY_CALL_TIMEOUT < settings.AGENTMEMORY_CURSOR_LEASE:
        found.append(
            Error(
                "A call may outlast the lease of its cursor: two workers could pay for one window.",
                hint="Set AGENTMEMORY_CALL_TIMEOUT below AGENTMEMORY_CURSOR_LEASE.",
                id="agentmemory.E001",
            )
        )
    if not settings.AGENTMEMORY_BACKOFF_BASE < settings.AGENTMEMORY_CADENCE:
        found.append(
            Error(
                "After a failure the next tick would come too early and every second retry would be lost.",
                hint="Set AGENTMEMORY_BACKOFF_BASE below AGENTMEMORY_CADENCE.",
                id="agentmemory.E002",
            )
        )
    if settings.AGENTMEMORY_BACKOFF_CAP < settings.AGENTMEMORY_BACKOFF_BASE:
        found.append(
            Error(
                "The longest backoff is shorter than the first.",
                hint="Set AGENTMEMORY_BACKOFF_CAP to at least AGENTMEMORY_BACKOFF_BASE.",
                id="agentmemory.E003",
            )
        )
    short = [
        name
        for name in (
            "AGENTMEMORY_EXECUTION_LEASE",
            "AGENTMEMORY_CURSOR_LEASE",
            "AGENTMEMORY_RECOVERY_SCAN",
            "AGENTMEMORY_WATCHDOG",
        )
        if getattr(settings, name) < SHORTEST_LEASE
    ]
    if short:
        found.append(
            Error(
                f"Too short to be kept: {', '.join(short)}.",
                hint=f"Give each at least {SHORTEST_LEASE} seconds.",
                id="agentmemory.E004",
            )
        )
    return found


def _queue() -> list[CheckMessage]:
    queue = settings.Q_CLUSTER
    found: list[CheckMessage] = []
    if not queue["timeout"] < queue["retry"]:
        found.append(
            Error(
                "A task could be delivered again while it still runs.",
                hint="The queue's retry must be longer than AGENTMEMORY_TASK_TIMEOUT.",
                id="agentmemory.E005",
            )
        )
    if not queue["timeout"] > settings.AGENTMEMORY_CALL_TIMEOUT:
        found.append(
            Error(
                "A task would be ended before one call to a model could be.",
                hint="Set AGENTMEMORY_TASK_TIMEOUT above AGENTMEMORY_CALL_TIMEOUT.",
                id="agentmemory.E006",
            )
        )
    if queue.get("orm") != "default" or queue.get("sync"):
        found.append(
            Error(
                "The queue does not lie in this database, so that enqueueing is not part of the transaction.",
                hint='Q_CLUSTER must have "orm": "default" and no "sync".',
                id="agentmemory.E007",
            )
        )
    if queue["queue_limit"] != 1 or queue["bulk"] != 1:
        found.append(
            Error(
                "Tasks would wait in a worker's memory while their lock runs out, and run twice.",
                hint='Q_CLUSTER must have "queue_limit": 1 and "bulk": 1.',
                id="agentmemory.E008",
            )
        )
    return found
