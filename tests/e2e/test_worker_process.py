"""A real supervised cluster: whatever part of it is killed, the work goes on (A3)."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest
from django.db import connection
from django_q.models import OrmQ

from sessions_exec import queue
from sessions_exec.models import Heartbeat, TaskRun, Tick
from tests.support import clusters

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.e2e]

REMEMBER = "tests.support.work.remember"
LONG = "tests.support.work.take_long"


def done(number: int) -> bool:
    return Tick.objects.filter(name=f"remembered {number}").exists()


def do(number: int, *, within: float = 40.0) -> None:
    """Have one task done."""
    queue.enqueue(REMEMBER, number)
    clusters.until(lambda: done(number), within=within)


def parts(supervisor: subprocess.Popen[str]) -> tuple[psutil.Process, psutil.Process, list[psutil.Process]]:
    """The cluster's first process, its sentinel, and the sentinel's workers, monitor and pusher, in this order."""
    (cluster,) = clusters.until(lambda: psutil.Process(supervisor.pid).children())
    (sentinel,) = clusters.until(lambda: cluster.children())
    members = clusters.until(lambda: found if len(found := sentinel.children()) >= 4 else [])
    return cluster, sentinel, sorted(members, key=lambda member: member.pid)


@pytest.fixture
def worker(transactional_db: None) -> Iterator[subprocess.Popen[str]]:
    with clusters.running("worker") as process:
        try:
            do(0)
            yield process
        finally:
            sys.stdout.write(clusters.output(process))


def restarts() -> list[tuple[int, str]]:
    return list(Heartbeat.objects.filter(restarts__gt=0).values_list("restarts", "last_restart_reason"))


def test_a3_the_work_goes_on_when_an_idle_worker_process_is_killed(worker: subprocess.Popen[str]) -> None:
    """It dies with the lock of the local queue in its hands: nothing would ever be done again."""
    _, _, members = parts(worker)
    for member in members[:2]:
        member.kill()
    for number in (1, 2, 3):
        queue.enqueue(REMEMBER, number)
    clusters.until(lambda: all(done(number) for number in (1, 2, 3)))


def test_a3_the_death_of_an_idle_worker_process_is_no_minute_of_waiting(transactional_db: None) -> None:
    """The watchdog has all of its patience, and more than the test has."""
    with clusters.running("worker", AGENTMEMORY_WATCHDOG="600") as process:
        do(0)
        _, _, members = parts(process)
        # Who dies before the supervisor has looked for the first time is not missed.
        clusters.until(lambda: Heartbeat.objects.filter(processes__gte=len(members) + 2).exists())
        for member in members[:2]:
            member.kill()
        do(1, within=200.0)


# As `manage.py`, with a watchdog that knows nothing of deaths.
WITHOUT_HURRY = (
    "-c",
    "import sys; import django; from config import entry; entry.prepare(); django.setup(); "
    "from sessions_exec import watchdog; watchdog.HURRY = 10**9; entry.command_line(['manage.py', *sys.argv[1:]])",
)


@pytest.mark.slow
def test_a3_without_the_watchdog_the_death_of_an_idle_worker_process_ends_all_work(transactional_db: None) -> None:
    """The negative control of the tests above."""
    with clusters.running("worker", program=WITHOUT_HURRY, AGENTMEMORY_WATCHDOG="600") as process:
        do(0)
        _, sentinel, _ = parts(process)
        # A killed process ends all work only when it held the queue's lock: a few kills hit one that does.
        assert any(_ends_all_work(sentinel, number) for number in range(1, 7))


def _ends_all_work(sentinel: psutil.Process, number: int) -> bool:
    for member in sorted(sentinel.children(), key=lambda member: member.pid)[:2]:
        member.kill()
    queue.enqueue(REMEMBER, number)
    last = time.monotonic() + 12
    while not done(number) and time.monotonic() < last:
        time.sleep(0.1)
    return not done(number)


def test_a3_the_work_goes_on_when_the_database_has_dropped_all_connections(worker: subprocess.Popen[str]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    for number in (1, 2, 3):
        do(number)
    assert worker.poll() is None


def test_a3_the_work_goes_on_when_a_busy_worker_process_is_killed(worker: subprocess.Popen[str]) -> None:
    queue.enqueue("tests.support.work.die", 1)
    clusters.until(lambda: "a worker died in a task" in clusters.output(worker))
    for number in (1, 2, 3):
        do(number)
    assert not TaskRun.objects.exists()


@pytest.mark.parametrize("part", [0, 1])
def test_a3_the_work_goes_on_when_a_parent_of_the_cluster_is_killed(worker: subprocess.Popen[str], part: int) -> None:
    cluster, sentinel, members = parts(worker)
    (cluster, sentinel)[part].kill()
    do(1)
    assert clusters.living([cluster, sentinel, *members]) == []
    assert "ended with status" in restarts()[0][1]


def test_a3_a_cluster_ends_with_its_supervisor_and_another_one_takes_over(worker: subprocess.Popen[str]) -> None:
    family = clusters.tree(worker.pid)
    queue.enqueue(LONG, 60)
    clusters.until(lambda: Tick.objects.filter(name="long work").exists())
    worker.kill()
    worker.wait()
    clusters.until(lambda: not clusters.living(family), within=3)
    with clusters.running("worker"):
        do(1)


def test_a3_everything_killed_at_once_is_recovered_from(worker: subprocess.Popen[str]) -> None:
    family = clusters.tree(worker.pid)
    for member in family:
        member.suspend()
    worker.kill()
    for member in family:
        member.kill()
    with clusters.running("worker"):
        do(1)


def test_a3_sigterm_lets_a_running_task_end_and_leaves_nothing(worker: subprocess.Popen[str]) -> None:
    family = clusters.tree(worker.pid)
    queue.enqueue(LONG, 2)
    clusters.until(lambda: Tick.objects.filter(name="long work", outcome="begun").exists())
    assert clusters.stop(worker) == 0
    assert Tick.objects.get(name="long work").outcome == "done"
    assert clusters.living(family) == []
    assert not TaskRun.objects.exists()
    assert not Heartbeat.objects.exists()


@pytest.mark.slow
def test_a3_sigterm_stops_a_task_that_takes_too_long_and_it_gives_back_what_it_began(
    worker: subprocess.Popen[str],
) -> None:
    family = clusters.tree(worker.pid)
    queue.enqueue(LONG, 60)
    clusters.until(lambda: Tick.objects.filter(name="long work").exists())
    clusters.stop(worker, signal.SIGINT)
    assert Tick.objects.get(name="long work").outcome == "given back"
    assert clusters.living(family) == []


def test_a3_a_busy_cluster_is_not_a_stuck_one(worker: subprocess.Popen[str]) -> None:
    """Tasks wait far longer than the watchdog's patience, but no worker is free for them."""
    for seconds in (3, 3):
        queue.enqueue(LONG, seconds)
    queue.enqueue(REMEMBER, 1)
    clusters.until(lambda: done(1))
    assert restarts() == []


def test_a3_a_cluster_that_stands_still_is_started_again(worker: subprocess.Popen[str]) -> None:
    """Its pusher hangs: tasks lie in the queue although workers are free."""
    _, _, members = parts(worker)
    for member in members[2:]:
        member.suspend()
    do(1)
    # Regular work may have been pulled just before.
    assert any(why in restarts()[0][1] for why in ("although a worker is free", "and no worker begins it"))


def test_a3_two_clusters_do_each_task_once(worker: subprocess.Popen[str]) -> None:
    with clusters.running("worker"):
        clusters.until(lambda: Heartbeat.objects.count() == 2)
        queue.enqueue_many(REMEMBER, range(1, 60))
        clusters.until(lambda: Tick.objects.filter(name__startswith="remembered").count() == 60)
        clusters.until(lambda: not any(row.task["args"][0] == REMEMBER for row in OrmQ.objects.all()))
        assert restarts() == []
