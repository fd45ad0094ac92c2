"""Which supervised clusters are alive, and what became of those that are not."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import F, QuerySet

from sessions_exec.leases import ClockTimestamp
from sessions_exec.models import Heartbeat, TaskRun

# A beat comes every second; a pause of the machine or of the database is no death.
DEAD_AFTER = 15.0
KEPT = timedelta(days=1)


def beat(*, worker: str, host: str, pid: int, processes: int) -> None:
    """Say that a worker is alive; `processes` are those of its cluster, 0 while it does not work yet."""
    alive = {"host": host, "pid": pid, "processes": processes, "beat_at": ClockTimestamp()}
    if not Heartbeat.objects.filter(worker=worker).update(**alive):
        Heartbeat.objects.get_or_create(worker=worker, defaults=alive)


def restarted(*, worker: str, reason: str) -> None:
    """Count a restart of a worker's cluster, with the reason."""
    Heartbeat.objects.filter(worker=worker).update(
        restarts=F("restarts") + 1, last_restart_at=ClockTimestamp(), last_restart_reason=reason[:500]
    )


def died(*, worker: str, task: str) -> None:
    """Count a process of a worker that ended in a task, with the task's name and argument."""
    Heartbeat.objects.filter(worker=worker).update(
        deaths=F("deaths") + 1, last_death_at=ClockTimestamp(), last_death_task=task[:500]
    )


def ended(worker: str) -> None:
    """Remove a worker that stopped in order: it is not missing."""
    Heartbeat.objects.filter(worker=worker).delete()


def alive() -> bool:
    """Whether any worker has given a sign of life lately."""
    return _recent().exists()


def living() -> set[str]:
    """The names of workers that have given a sign of life lately."""
    return set(_recent().values_list("worker", flat=True))


def working(worker: str) -> bool:
    """Whether this worker's cluster has begun to work, and lives."""
    return _recent().filter(worker=worker, processes__gt=0).exists()


def dead() -> list[str]:
    """Workers that still have tasks in hand although they have gone silent, or never had a heartbeat."""
    silent = TaskRun.objects.filter(started_at__lt=ClockTimestamp() - timedelta(seconds=DEAD_AFTER))
    return list(
        silent.exclude(worker__in=_recent().values("worker")).order_by().values_list("worker", flat=True).distinct()
    )


def tidy() -> int:
    """Remove the heartbeats of workers that have been silent for a day."""
    return Heartbeat.objects.filter(beat_at__lt=ClockTimestamp() - KEPT).delete()[0]


def _recent() -> QuerySet[Heartbeat]:
    return Heartbeat.objects.filter(beat_at__gt=ClockTimestamp() - timedelta(seconds=DEAD_AFTER))
