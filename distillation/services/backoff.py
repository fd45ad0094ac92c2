"""How long to wait after failures (D7). Pure."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings


def wait(failures: int, *, retry_after: float | None = None) -> timedelta:
    """The wait after so many failures in a row: the base doubled each time, capped; longer if the provider asks."""
    doublings = min(max(failures, 1) - 1, 60)
    seconds = min(settings.AGENTMEMORY_BACKOFF_BASE * 2**doublings, settings.AGENTMEMORY_BACKOFF_CAP)
    return timedelta(seconds=max(seconds, retry_after or 0.0))
