"""What each worker has in hand: a row from the pull of a task to its end.

A worker is one supervised cluster, known by its name. Each function here is one short transaction of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django.db.models import DurationField, ExpressionWrapper, F

from sessions_exec.leases import ClockTimestamp
from sessions_exec.models import TaskRun

LONGEST = 200


@dataclass(frozen=True, kw_only=True)
class InHand:
    """One task in a worker's hands: `pid` 0 is not begun yet, `age` is in seconds since its pull or its begin."""

    id: int
    function: str
    delivery: int | None
    pid: int
    age: float
    argument: str = ""


def count(worker: str) -> int:
    return TaskRun.objects.filter(worker=worker).count()


def count_of(function: str) -> int:
    """How many tasks that call this function are in hand, of all workers together."""
    return TaskRun.objects.filter(function=function).count()


def pulled(*, worker: str, delivery: int, function: str, argument: str) -> None:
    """Note that a worker took a task out of the queue."""
    TaskRun.objects.create(
        worker=worker,
        delivery=delivery,
        function=function[:LONGEST],
        argument=argument[:LONGEST],
        pid=0,
        started_at=ClockTimestamp(),
    )


def begun(*, worker: str, delivery: int, pid: int) -> None:
    """Note that a process begins a task it pulled; what the process had before has ended, told or not."""
    TaskRun.objects.filter(worker=worker, pid=pid).delete()
    TaskRun.objects.filter(worker=worker, delivery=delivery).update(pid=pid, started_at=ClockTimestamp())


def ended(*, worker: str, delivery: int) -> None:
    TaskRun.objects.filter(worker=worker, delivery=delivery).delete()


def in_hand(worker: str) -> list[InHand]:
    """The tasks of a worker, the oldest first."""
    age = ExpressionWrapper(ClockTimestamp() - F("started_at"), output_field=DurationField())
    return [
        InHand(
            id=run.pk,
            function=run.function,
            argument=run.argument,
            delivery=run.delivery,
            pid=run.pid,
            age=seconds(run.age),
        )
        for run in TaskRun.objects.filter(worker=worker).annotate(age=age)
    ]


def forget(ids: list[int]) -> int:
    """Remove rows whose processes are dead. Returns how many there were."""
    return TaskRun.objects.filter(pk__in=ids).delete()[0]


def seconds(length: timedelta) -> float:
    """A length of time that the database measured; clocks that differ make none of them negative."""
    return max(0.0, length.total_seconds())
