"""The queue as a thin dispatcher: part of the caller's transaction, pulled by who is free, noted by who pulled it."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django_q.conf import Conf
from django_q.models import OrmQ, Schedule, Task
from django_q.scheduler import scheduler
from django_q.signing import SignedPackage
from django_q.worker import worker as django_q_worker
from pytest_django import Settings

from sessions_exec import queue, regular, tasks
from sessions_exec.errors import TaskFailed, TaskStopped
from sessions_exec.models import TaskRun, Tick
from sessions_exec.services import runs

pytestmark = pytest.mark.django_db

HOURLY = regular.Schedule(name="hourly", what="is tested", function="tests.support.work.remember", every=3600)


@pytest.fixture(autouse=True)
def _worker(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.AGENTMEMORY_WORKER_NAME = "this"
    # The library would close the connection that holds the test's transaction.
    for module in ("scheduler", "worker"):
        monkeypatch.setattr(f"django_q.{module}.close_old_django_connections", lambda: None)


def functions() -> list[tuple[Any, ...]]:
    return [row.task["args"] for row in OrmQ.objects.order_by("id")]


def pull() -> int | None:
    pulled = queue._pull("agentmemory")
    return pulled[0] if isinstance(pulled, tuple) else None


def test_a_task_is_enqueued_with_the_transaction_that_needs_it_or_not_at_all() -> None:
    with transaction.atomic():
        queue.enqueue("a.b", 1)
        queue.enqueue_many("a.b", [2, 3])
        transaction.set_rollback(True)
    assert queue.waiting().count == 0


def test_many_tasks_take_as_many_statements_as_few() -> None:
    with CaptureQueriesContext(connection) as few:
        assert queue.enqueue_many("a.b", [1]) == 1
    with CaptureQueriesContext(connection) as many:
        assert queue.enqueue_many("a.b", range(2000)) == 2000
    assert len(few) == len(many) == 1


def test_an_enqueued_task_is_one_that_the_cluster_can_read() -> None:
    queue.enqueue("a.b", 7)
    task = OrmQ.objects.get().task
    assert (task["func"], task["args"], task["kwargs"]) == (queue.PERFORM, ("a.b", 7, ""), {})
    assert task["name"] == "a.b(7)"


def test_what_waits_is_told_with_the_age_of_the_oldest() -> None:
    queue.enqueue("a.b", 1)
    OrmQ.objects.update(lock=timezone.now() - timedelta(seconds=90))
    queue.enqueue("a.b", 2)
    waiting = queue.waiting()
    assert waiting.count == 2
    assert waiting.oldest == OrmQ.objects.order_by("id").values_list("id", flat=True).first()
    assert 89 < waiting.age < 120


def test_the_oldest_task_is_pulled_first_and_locked_for_the_retry() -> None:
    queue.enqueue_many("a.b", [1, 2])
    first = OrmQ.objects.order_by("id")[0]
    assert pull() == first.pk
    first.refresh_from_db()
    assert first.lock > timezone.now() + timedelta(seconds=100)
    assert queue.waiting().count == 1


def test_nothing_is_pulled_for_workers_that_are_all_busy(settings: Settings) -> None:
    queue.enqueue_many("a.b", [1, 2, 3])
    assert pull()
    assert pull()
    assert pull() is None
    settings.AGENTMEMORY_WORKER_NAME = "another"
    assert pull()


def test_a_pulled_task_is_noted_from_its_pull_to_its_end() -> None:
    queue.enqueue("a.b", 5)
    delivery = pull()
    assert delivery
    noted = TaskRun.objects.get()
    assert (noted.worker, noted.function, noted.argument, noted.pid) == ("this", "a.b", "5", 0)
    queue._begin(task={"ack_id": delivery})
    noted.refresh_from_db()
    assert noted.pid
    queue._end(task={"ack_id": delivery})
    assert not TaskRun.objects.exists()


def test_a_process_that_begins_a_task_has_ended_the_one_before() -> None:
    for delivery in (1, 2):
        runs.pulled(worker="this", delivery=delivery, function="a.b", argument="")
        runs.begun(worker="this", delivery=delivery, pid=42)
    assert [run.delivery for run in runs.in_hand("this")] == [2]


def test_a_task_that_cannot_be_read_is_removed_and_stops_nobody() -> None:
    OrmQ.objects.create(key="agentmemory", payload="not signed by us", lock=timezone.now())
    queue.enqueue("a.b", 1)
    assert pull() is None
    assert pull() is not None
    assert OrmQ.objects.count() == 1


def test_a_task_that_was_pulled_and_not_begun_is_given_back_at_once() -> None:
    queue.enqueue("a.b", 1)
    delivery = pull()
    assert queue.waiting().count == 0
    assert queue.give_back([delivery, None]) == 1
    assert queue.waiting().count == 1


def test_a_failed_task_tells_the_queue_the_kind_of_error_and_nothing_of_its_text() -> None:
    with pytest.raises(TaskFailed) as failed:
        tasks.perform("tests.support.work.fail", "my secret")
    assert str(failed.value) == "tests.support.work.fail: ValueError"
    assert failed.value.__suppress_context__


def test_sigterm_stops_a_task_in_its_midst_with_what_no_error_handler_swallows() -> None:
    with pytest.raises(TaskStopped):
        tasks.perform("tests.support.work.be_asked_to_stop")
    assert not issubclass(TaskStopped, Exception)


def test_regular_work_is_noted_with_what_came_of_it() -> None:
    tasks.perform("tests.support.work.tell", None, "hourly")
    assert Tick.objects.get(name="hourly").outcome == "told"


def test_schedules_are_made_once() -> None:
    queue.ensure_schedules([HOURLY])
    queue.ensure_schedules([HOURLY])
    made = Schedule.objects.get()
    assert (made.name, made.minutes, made.repeats) == ("hourly", 60, -1)
    assert made.next_run > timezone.now() + timedelta(minutes=50)
    assert queue.missing_schedules([HOURLY]) == []


@pytest.mark.parametrize(
    "damage",
    [
        {"args": "not (a literal"},
        {"func": "os.getcwd"},
        {"repeats": 0},
        {"minutes": 1},
        {"next_run": None},
        {"schedule_type": "C", "cron": "nonsense"},
        {"kwargs": "[1]"},
    ],
    ids=str,
)
def test_a_damaged_schedule_of_ours_is_repaired(damage: dict[str, Any]) -> None:
    queue.ensure_schedules([HOURLY])
    Schedule.objects.update(**damage)
    assert queue.missing_schedules([HOURLY]) == ["hourly"]
    queue.ensure_schedules([HOURLY])
    assert queue.missing_schedules([HOURLY]) == []


def test_a_doubled_schedule_of_ours_becomes_one() -> None:
    queue.ensure_schedules([HOURLY])
    Schedule.objects.create(name="hourly", func="os.getcwd")
    queue.ensure_schedules([HOURLY])
    assert Schedule.objects.count() == 1


def test_a_schedule_of_ours_that_is_no_longer_wanted_goes_and_others_stay() -> None:
    Schedule.objects.create(name="of an operator", func="os.getcwd", schedule_type="D")
    queue.ensure_schedules([HOURLY])
    queue.ensure_schedules([])
    assert [schedule.name for schedule in Schedule.objects.all()] == ["of an operator"]


@pytest.mark.parametrize(
    "malformed",
    [{"args": "not (a literal"}, {"schedule_type": "C", "cron": "nonsense"}, {"kwargs": "[1]"}, {"schedule_type": "?"}],
    ids=str,
)
def test_a_malformed_schedule_of_somebody_is_put_to_rest_and_does_not_stop_ours(malformed: dict[str, Any]) -> None:
    past = timezone.now() - timedelta(seconds=1)
    bad = Schedule.objects.create(name="bad", func="os.getcwd", schedule_type="D", next_run=past)
    Schedule.objects.filter(pk=bad.pk).update(**malformed)
    queue.ensure_schedules([HOURLY])
    OrmQ.objects.all().delete()
    Schedule.objects.filter(name="hourly").update(next_run=past)
    assert queue.unsound_schedules() == ["bad"]

    scheduler()

    assert functions() == [(HOURLY.function, None, "hourly")]


def test_without_the_repair_a_malformed_schedule_does_stop_ours() -> None:
    queue.ensure_schedules([HOURLY])
    OrmQ.objects.all().delete()
    past = timezone.now() - timedelta(seconds=2)
    Schedule.objects.create(name="bad", func="os.getcwd", args="not (a literal", schedule_type="D", next_run=past)
    Schedule.objects.filter(name="hourly").update(next_run=past + timedelta(seconds=1))
    with transaction.atomic():
        scheduler()
    assert functions() == []


def test_regular_work_whose_time_passed_while_nobody_was_there_is_done_at_once_and_once() -> None:
    queue.ensure_schedules([HOURLY])
    assert functions() == [(HOURLY.function, None, "hourly")]
    queue.ensure_schedules([HOURLY])
    assert len(functions()) == 1
    Tick.objects.update(at=timezone.now() - timedelta(hours=2))
    queue.ensure_schedules([HOURLY])
    queue.ensure_schedules([HOURLY])
    assert len(functions()) == 2


def test_old_results_and_endless_tasks_are_purged() -> None:
    long_ago = timezone.now() - timedelta(days=8)
    for number, stopped in enumerate([long_ago, timezone.now()]):
        Task.objects.create(id=f"{number:032}", name="x", func="a.b", started=stopped, stopped=stopped, success=False)
    queue.enqueue_many("a.b", [1, 2, 3])
    delivery = pull()
    # In the midst of its work, and not for long.
    assert pull()
    row = OrmQ.objects.get(pk=delivery)
    endless = {**row.task, "started": timezone.now() - timedelta(days=2)}
    OrmQ.objects.filter(pk=delivery).update(payload=SignedPackage.dumps(endless))
    assert queue.purge() == "1 results and 1 tasks removed"
    assert (Task.objects.count(), OrmQ.objects.count()) == (1, 2)


def test_the_work_of_a_task_is_done_by_the_librarys_own_worker() -> None:
    """The package is built here and not by the library: its own worker has to read it."""
    queue.enqueue("tests.support.work.remember", 3)
    pulled = queue._pull("agentmemory")
    assert isinstance(pulled, tuple)
    task = SignedPackage.loads(pulled[1])

    class Lane(list[Any]):
        def get(self) -> Any:
            return self.pop(0)

        def put(self, item: Any) -> None:
            self.append(item)

    class Timer:
        value = -1.0

        def get_lock(self) -> Any:
            return transaction.atomic()

    results = Lane()
    django_q_worker(Lane([{**task, "ack_id": pulled[0]}, "STOP"]), results, Timer(), 5)
    assert results[0]["success"], json.dumps(results[0]["result"])
    assert Tick.objects.filter(name="remembered 3").exists()


@pytest.mark.django_db
def test_a_task_of_another_shape_is_told_as_one_that_cannot_be_read() -> None:
    queue.enqueue("distillation.tasks.coordinate")
    for shape in ("words", {"func": queue.PERFORM, "args": None}, {}, None):
        OrmQ.objects.create(key=Conf.CLUSTER_NAME, payload=SignedPackage.dumps(shape), lock=timezone.now())
    assert [task.function for task in queue.upcoming(9)] == ["distillation.tasks.coordinate", "", "", "", ""]
