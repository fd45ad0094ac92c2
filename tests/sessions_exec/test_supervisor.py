"""The supervisor without a real cluster: what it takes over, what it survives, and who ends with whom."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import OperationalError, connection
from django_q.models import OrmQ

from sessions_exec import queue, supervisor
from sessions_exec.leases import ClockTimestamp
from sessions_exec.models import Heartbeat, TaskRun
from sessions_exec.services import heartbeats, runs
from tests.support import clusters

ROOT = Path(__file__).resolve().parents[2]


def plan(command: list[str], *, patience: float = 0.2) -> supervisor.Plan:
    return supervisor.Plan(
        worker="this", command=command, environment=os.environ, workers=2, patience=patience, task_timeout=5
    )


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def has(worker: str, *, delivery: int, pid: int = 0) -> None:
    runs.pulled(worker=worker, delivery=delivery, function="a.b", argument="")
    if pid:
        runs.begun(worker=worker, delivery=delivery, pid=pid)


@pytest.mark.django_db
def test_a3_what_a_dead_cluster_pulled_and_did_not_begin_is_pulled_again_at_once() -> None:
    queue.enqueue_many("a.b", [1, 2])
    first, second = OrmQ.objects.order_by("id")
    OrmQ.objects.update(lock=ClockTimestamp() + timedelta(seconds=600))
    has("this", delivery=first.pk)
    has("this", delivery=second.pk, pid=4_000_000)

    supervisor._take_over("this")

    assert queue.waiting().oldest == first.pk
    assert queue.waiting().count == 1
    assert not TaskRun.objects.exists()


def test_a3_a_cluster_is_ready_when_it_has_told_of_its_processes_and_they_count_as_seen() -> None:
    watched = supervisor.Supervisor(plan([]), stop=threading.Event())
    watched.ready, writer = os.pipe()
    os.set_blocking(watched.ready, False)
    assert not watched._is_ready()
    os.write(writer, b"11 12 13")
    os.close(writer)
    assert watched._is_ready()
    assert watched.watchdog._seen == {11, 12, 13}


@pytest.mark.django_db
def test_d22_a_process_that_died_in_a_task_is_told_of_once_with_what_it_did_and_counted() -> None:
    told: list[tuple[object, ...]] = []
    mourning = dataclasses.replace(plan([]), died=lambda *died: told.append(died))
    watched = supervisor.Supervisor(mourning, stop=threading.Event())
    heartbeats.beat(worker="this", host="h", pid=1, processes=1)
    runs.pulled(worker="this", delivery=1, function="a.b", argument="12")
    runs.begun(worker="this", delivery=1, pid=4_000_000)
    has("this", delivery=2, pid=os.getpid())

    watched._judged()
    watched._judged()

    assert told == [("this", 4_000_000, "a.b", "12")]
    assert Heartbeat.objects.values_list("deaths", "last_death_task").get() == (1, "a.b 12")
    assert TaskRun.objects.get().pid == os.getpid()


@pytest.mark.django_db
def test_d22_what_cannot_be_told_of_a_death_now_is_told_at_the_next_look() -> None:
    told: list[str] = []

    def mourn(worker: str, pid: int, function: str, argument: str) -> None:
        told.append(function)
        if len(told) == 1:
            raise OperationalError("the server closed the connection")

    watched = supervisor.Supervisor(dataclasses.replace(plan([]), died=mourn), stop=threading.Event())
    has("this", delivery=1, pid=4_000_000)
    with pytest.raises(OperationalError):
        watched._judged()
    watched._judged()
    watched._judged()
    assert told == ["a.b", "a.b"]


@pytest.mark.django_db
def test_d22_what_a_cluster_had_in_hand_when_it_ended_is_told_of_unless_its_process_lives() -> None:
    told: list[tuple[object, ...]] = []
    mourning = dataclasses.replace(plan([]), died=lambda *died: told.append(died))
    for delivery, pid in ((1, 0), (2, 4_000_000), (3, os.getpid())):
        has("this", delivery=delivery, pid=pid)
    supervisor.Supervisor(mourning, stop=threading.Event())._take_over()
    assert told == [("this", 4_000_000, "a.b", "")]


@pytest.mark.django_db
def test_a3_the_tasks_of_a_worker_that_went_silent_are_found_by_the_others() -> None:
    for worker in ("silent", "alive", "never seen"):
        has(worker, delivery=1)
    TaskRun.objects.update(started_at=ClockTimestamp() - timedelta(seconds=60))
    # It may have begun before its supervisor could say so.
    has("new", delivery=2)
    for worker in ("silent", "alive"):
        heartbeats.beat(worker=worker, host="h", pid=1, processes=1)
    Heartbeat.objects.filter(worker="silent").update(beat_at=ClockTimestamp() - timedelta(seconds=60))
    assert sorted(heartbeats.dead()) == ["never seen", "silent"]


@pytest.mark.django_db
def test_a_worker_is_alive_while_its_beat_is_recent_and_works_once_it_has_processes() -> None:
    assert not heartbeats.alive()
    heartbeats.beat(worker="this", host="h", pid=1, processes=0)
    assert heartbeats.alive()
    assert not heartbeats.working("this")
    heartbeats.beat(worker="this", host="h", pid=1, processes=5)
    assert heartbeats.working("this")
    Heartbeat.objects.update(beat_at=ClockTimestamp() - timedelta(seconds=60))
    assert not heartbeats.alive()


@pytest.mark.django_db
def test_old_heartbeats_are_removed_after_a_day() -> None:
    for worker, age in (("old", 25), ("new", 23)):
        heartbeats.beat(worker=worker, host="h", pid=1, processes=1)
        Heartbeat.objects.filter(worker=worker).update(beat_at=ClockTimestamp() - timedelta(hours=age))
    assert heartbeats.tidy() == 1


@pytest.mark.django_db
def test_a_cluster_that_cannot_start_is_tried_again_and_the_reason_is_kept() -> None:
    stop = threading.Event()
    watched = supervisor.Supervisor(plan(python("raise SystemExit(3)")), stop=stop)
    threading.Timer(2.0, stop.set).start()
    seen: list[tuple[int, str]] = []
    leave = watched._leave

    def look_and_leave() -> None:
        seen.extend(Heartbeat.objects.values_list("restarts", "last_restart_reason"))
        leave()

    watched._leave = look_and_leave  # type: ignore[method-assign]
    watched.run()
    restarts, reason = seen[0]
    # Less and less often: without a pause there would be a dozen.
    assert 2 <= restarts <= 6
    assert reason == "the cluster's process ended with status 3"
    assert not Heartbeat.objects.exists()


@pytest.mark.django_db
def test_a3_a_database_that_does_not_answer_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = threading.Event()
    watched = supervisor.Supervisor(plan(python("import time; time.sleep(60)")), stop=stop)
    monkeypatch.setattr(connection, "close", lambda: None)
    looks: list[int] = []

    def no_database(**_: object) -> None:
        looks.append(1)
        if len(looks) == 3:
            stop.set()
        raise OperationalError("the server closed the connection")

    monkeypatch.setattr(heartbeats, "beat", no_database)
    watched.run()
    assert len(looks) == 3
    assert watched.cluster is not None
    assert watched.cluster.returncode is not None


@pytest.mark.django_db
def test_a_cluster_that_ignores_sigterm_is_killed_with_its_whole_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "DRAIN_SECONDS", 0.3)
    monkeypatch.setattr(supervisor, "GIVE_BACK_SECONDS", 0.3)
    deaf = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.fork(); "
        "print('up', flush=True); time.sleep(60)"
    )
    stop = threading.Event()
    watched = supervisor.Supervisor(plan(python(deaf), patience=5), stop=stop)
    watched._start()
    assert watched.cluster is not None
    pid = watched.cluster.pid
    family = clusters.until(lambda: clusters.tree(pid))
    watched._drain()
    assert watched.cluster.returncode == -signal.SIGKILL
    clusters.until(lambda: not clusters.living(family), within=3)


BOUND = """
import os, sys, time
from sessions_exec import processes
processes.end_with_parent(os.getppid())
processes.bind_forked_children()
if os.fork() == 0:
    os.fork()
print("up", flush=True)
time.sleep(60)
"""
PARENT = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {BOUND!r}], start_new_session=True, stdout=subprocess.PIPE)
for _ in range(3):
    child.stdout.readline()
print("all up", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("by_linux", [True, False])
def test_a3_processes_end_with_the_one_that_started_them_however_it_ends(by_linux: bool) -> None:
    program = PARENT
    if not by_linux:
        program = PARENT.replace(
            "processes.end_with_parent", "processes._ask_linux = lambda n: False; processes.end_with_parent"
        )
    parent = subprocess.Popen(python(program), cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "all up\n"
        family = clusters.tree(parent.pid)
        assert len(family) == 3
    finally:
        parent.kill()
        parent.wait()
    clusters.until(lambda: not clusters.living(family), within=4)
