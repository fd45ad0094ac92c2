"""The queue: enqueueing, the cluster that works it off, its schedules. The only module that knows django-q2.

It is a thin dispatcher. A task may come twice, late, or never; what is true is in rows of our own, so that a lost,
late or doubled task costs time and nothing else. Ids cross the queue, objects never.
"""

from __future__ import annotations

import ast
import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection, transaction
from django.db.models import DurationField, ExpressionWrapper, F, QuerySet
from django.utils import timezone
from django_q.brokers.orm import ORM
from django_q.cluster import Cluster
from django_q.conf import Conf
from django_q.humanhash import uuid
from django_q.models import OrmQ, Schedule, Task
from django_q.signals import post_execute_in_worker, pre_execute
from django_q.signing import SignedPackage

from sessions_exec import processes, regular
from sessions_exec.leases import ClockTimestamp
from sessions_exec.services import runs, ticks

logger = logging.getLogger(__name__)

PERFORM = "sessions_exec.tasks.perform"
RESULTS_KEPT = timedelta(days=7)
# A task that kills its worker comes again and again: its work is found anew from state, so it may go.
DELIVERIES_KEPT = timedelta(days=1)
PURGED_AT_ONCE = 1000
ALL_BUSY_SECONDS = 0.05
# The scheduler looks every 30 seconds, and its tasks may wait for a worker.
SCHEDULER_LATE = 60.0
COUNTED = 10_000
Argument = int | str


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """What nobody has pulled yet: how many tasks, `COUNTED` at most, and the oldest one's id and age in seconds."""

    count: int
    oldest: int | None
    age: float


@dataclass(frozen=True, kw_only=True)
class Next:
    """A task that nobody has pulled yet, and since when it might have been. An unreadable one has no function."""

    function: str
    argument: str
    since: datetime


# --- enqueueing ---


def enqueue(function: str, argument: Argument | None = None) -> None:
    """Have `function(argument)` called by a worker once the caller's transaction is committed."""
    OrmQ.objects.create(key=Conf.CLUSTER_NAME, payload=_package(function, argument), lock=ClockTimestamp())


def enqueue_many(function: str, arguments: Iterable[Argument]) -> int:
    """Enqueue one task for each argument, as part of the caller's transaction, in one statement. Returns how many."""
    tasks = [
        OrmQ(key=Conf.CLUSTER_NAME, payload=_package(function, argument), lock=ClockTimestamp())
        for argument in arguments
    ]
    return len(OrmQ.objects.bulk_create(tasks))


def waiting() -> Waiting:
    """What lies in the queue to be pulled now."""
    age = ExpressionWrapper(ClockTimestamp() - F("lock"), output_field=DurationField())
    oldest = _unpulled().annotate(age=age).values_list("id", "age").first()
    if oldest is None:
        return Waiting(count=0, oldest=None, age=0.0)
    count = _unpulled().order_by().values("pk")[:COUNTED].count()
    return Waiting(count=count, oldest=oldest[0], age=runs.seconds(oldest[1]))


def upcoming(most: int) -> list[Next]:
    """The tasks that are pulled next, the first one first."""
    found = []
    for row in _unpulled()[:most]:
        function, argument = _named(row.task) or ("", "")
        found.append(Next(function=function, argument=argument, since=row.lock))
    return found


def _unpulled(key: str = Conf.CLUSTER_NAME) -> QuerySet[OrmQ]:
    tasks: QuerySet[OrmQ] = OrmQ.objects.filter(key=key, lock__lte=ClockTimestamp())
    return tasks.order_by("lock", "id")


def give_back(deliveries: Iterable[int | None]) -> int:
    """Let tasks that were pulled and not begun be pulled again at once. Returns how many there were."""
    ids = [delivery for delivery in deliveries if delivery is not None]
    return int(OrmQ.objects.filter(pk__in=ids).update(lock=ClockTimestamp()))


def purge() -> str:
    """Remove what django-q2 keeps of tasks that ended, and tasks that have come again for a day; a bounded number."""
    old = Task.objects.filter(stopped__lt=timezone.now() - RESULTS_KEPT).order_by().values("pk")[:PURGED_AT_ONCE]
    results = Task.objects.filter(pk__in=old).delete()[0]
    pulled = OrmQ.objects.filter(lock__gt=ClockTimestamp()).order_by("id")[:PURGED_AT_ONCE]
    endless = [row.pk for row in pulled if _enqueued_before(row, DELIVERIES_KEPT)]
    deliveries = OrmQ.objects.filter(pk__in=endless).delete()[0]
    return f"{results} results and {deliveries} tasks removed"


def _package(function: str, argument: Argument | None, regular_name: str = "") -> str:
    identity = uuid()[1]
    task = {
        "id": identity,
        "name": f"{function}({'' if argument is None else argument})"[-100:],
        "func": PERFORM,
        "args": (function, argument, regular_name),
        "kwargs": {},
        "started": timezone.now(),
    }
    return str(SignedPackage.dumps(task))


def _enqueued_before(row: OrmQ, age: timedelta) -> bool:
    started = row.task.get("started")
    return bool(started and started < timezone.now() - age)


# --- pulling ---


class Broker(ORM):  # type: ignore[misc]  # django-q2 has no types
    """Pulls a task only when a worker is free for it, the oldest first, and notes who pulled it.

    Nothing waits in a local queue: there its lock could run out, so that it ran twice, and it would be withheld from
    a worker elsewhere that is free. The note is what the watchdog goes by.
    """

    def dequeue(self) -> list[tuple[int, str]] | None:
        try:
            pulled = _pull(self.list_key)
        except DatabaseError as error:
            # That it takes no writes, the ticker tells, once.
            if not regular.takes_reads_alone(error):
                kind = type(error).__name__
                logger.warning("the queue cannot be read", extra={"action": "queue.unreadable", "kind": kind})
            connection.close()
            time.sleep(1.0)
            return None
        if isinstance(pulled, float):
            time.sleep(pulled)
            return None
        return [pulled]


@transaction.atomic
def _pull(key: str) -> tuple[int, str] | float:
    """A task's row and payload, or for how many seconds there is nothing to do."""
    worker = settings.AGENTMEMORY_WORKER_NAME
    if worker and runs.count(worker) >= Conf.WORKERS:
        return ALL_BUSY_SECONDS
    row = _unpulled(key).select_for_update(skip_locked=True).first()
    if row is None:
        return float(Conf.POLL)
    task = row.task
    named = _named(task)
    if named is None:
        logger.error("a task cannot be read", extra={"action": "queue.task_unreadable", "delivery": row.pk})
        row.delete()
        return 0.0
    OrmQ.objects.filter(pk=row.pk).update(lock=ClockTimestamp() + timedelta(seconds=Conf.RETRY))
    if worker:
        function, argument = named
        runs.pulled(worker=worker, delivery=row.pk, function=function, argument=argument)
    return row.pk, row.payload


def _named(task: Any) -> tuple[str, str] | None:
    """A task's function and argument; nothing where it is of no shape that a worker takes."""
    try:
        called, arguments = task["func"], task["args"]
        if called != PERFORM:
            return str(called), ""
        function, argument = arguments[:2]
    except (KeyError, TypeError, ValueError):
        return None
    return str(function), "" if argument is None else str(argument)


# --- working ---


def run_cluster(*, parent: int, ready: Callable[[], None]) -> None:
    """Work off the queue in this process and those it forks, until SIGTERM; all of them end with `parent`.

    `ready` is called when it works. SIGTERM lets running tasks end and begins no other.
    """
    processes.end_with_parent(parent)
    processes.bind_forked_children()
    pre_execute.connect(_begin, dispatch_uid="agentmemory")
    post_execute_in_worker.connect(_end, dispatch_uid="agentmemory")
    cluster = Cluster()
    cluster.start()
    ready()
    cluster.sentinel.join()


def _begin(task: dict[str, Any], **_: object) -> None:
    if "ack_id" in task:
        _noted(lambda: runs.begun(worker=settings.AGENTMEMORY_WORKER_NAME, delivery=task["ack_id"], pid=os.getpid()))


def _end(task: dict[str, Any], **_: object) -> None:
    if "ack_id" in task:
        _noted(lambda: runs.ended(worker=settings.AGENTMEMORY_WORKER_NAME, delivery=task["ack_id"]))


def _noted(note: Callable[[], None]) -> None:
    """Write a note of the worker's, a second time over a fresh connection; a lost one is no reason to lose the task."""
    for again in (True, False):
        try:
            return note()
        except DatabaseError:
            connection.close()
            if not again:
                logger.warning("a task's begin or end was not noted", extra={"action": "task.unnoted"})


# --- schedules ---


def ensure_schedules(wanted: Sequence[regular.Schedule]) -> str:
    """Make our schedules and repair what was done to them; put others to rest that would stop the whole scheduler.

    One schedule that cannot be read ends the scheduler's pass for all. Work whose time passed while nobody was there
    is enqueued at once, by one of those who come.
    """
    changed = sum(_ensure(each) for each in wanted)
    Schedule.objects.filter(func=PERFORM).exclude(name__in=[each.name for each in wanted]).delete()
    rested = _rest_unsound()
    for each in wanted:
        if ticks.claim(each.name, every=each.every + SCHEDULER_LATE, tolerance=1.0):
            _enqueue_regular(each)
    return f"{changed} made or repaired, {rested} put to rest"


def unsound_schedules() -> list[str]:
    """The names of schedules that were put to rest or will be."""
    return [schedule.name or str(schedule.pk) for schedule in Schedule.objects.all()[:1000] if not _sound(schedule)]


def missing_schedules(wanted: Sequence[regular.Schedule]) -> list[str]:
    """Those of ours that are not there as they should be."""
    there = next_runs(wanted)
    return [each.name for each in wanted if each.name not in there]


def next_runs(wanted: Sequence[regular.Schedule]) -> dict[str, datetime]:
    """When each of ours runs next, by its name; one that is missing, or not as it should be, is left out."""
    rows = {
        each.name: Schedule.objects.filter(name=each.name, next_run__isnull=False, **_shape(each)).first()
        for each in wanted
    }
    return {name: row.next_run for name, row in rows.items() if row is not None}


def next_run(name: str) -> datetime | None:
    """When the schedule of this name runs next; nothing where there is none."""
    rows = Schedule.objects.filter(name=name, func=PERFORM, next_run__isnull=False).exclude(repeats=0)
    found: datetime | None = rows.order_by("id").values_list("next_run", flat=True).first()
    return found


def _shape(each: regular.Schedule) -> dict[str, Any]:
    return {
        "func": PERFORM,
        "args": repr((each.function, None, each.name)),
        "kwargs": None,
        "hook": None,
        "schedule_type": Schedule.MINUTES,
        "minutes": each.minutes,
        "repeats": -1,
        "cron": None,
        "cluster": None,
        "intended_date_kwarg": None,
    }


@transaction.atomic
def _ensure(each: regular.Schedule) -> bool:
    now = timezone.now()
    rows = list(Schedule.objects.select_for_update().filter(name=each.name).order_by("id"))
    if not rows:
        Schedule.objects.create(name=each.name, next_run=now + timedelta(seconds=each.every), **_shape(each))
        return True
    kept, *doubles = rows
    Schedule.objects.filter(pk__in=[row.pk for row in doubles]).delete()
    repairs = {name: value for name, value in _shape(each).items() if getattr(kept, name) != value}
    span = timedelta(seconds=2 * each.every + 120)
    if kept.next_run is None or not now - span < kept.next_run < now + span:
        repairs["next_run"] = now
    Schedule.objects.filter(pk=kept.pk).update(**repairs) if repairs else None
    return bool(repairs or doubles)


def _rest_unsound() -> int:
    active = Schedule.objects.exclude(repeats=0)[:1000]
    return int(Schedule.objects.filter(pk__in=[s.pk for s in active if not _sound(s)]).update(repeats=0))


def _sound(schedule: Schedule) -> bool:
    """Whether the scheduler can read a schedule, and reach its next time in a bounded number of steps."""
    try:
        keywords = _keywords(schedule.kwargs)
        ast.literal_eval(schedule.args or "()")
        schedule.calculate_next_run(timezone.now()) if schedule.schedule_type != Schedule.ONCE else None
    except Exception:  # noqa: BLE001  # whatever it is, it would stop the scheduler
        return False
    begun = schedule.next_run is None or schedule.next_run > timezone.now() - timedelta(days=366)
    return isinstance(keywords, dict) and begun


def _keywords(text: str | None) -> object:
    """What the scheduler would take for the keywords; words that it cannot read it leaves out."""
    try:
        return ast.literal_eval(text) if text else {}
    except (SyntaxError, ValueError):
        return {}


def _enqueue_regular(each: regular.Schedule) -> None:
    package = _package(each.function, None, each.name)
    OrmQ.objects.create(key=Conf.CLUSTER_NAME, payload=package, lock=ClockTimestamp())
