"""A task cluster under supervision: started, watched, killed and started again, drained at the end.

The cluster is a process group of its own. It ends with its supervisor, however that one ends; another supervisor
then takes over what it had in hand.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from django.db import DatabaseError, InterfaceError, connection

from sessions_exec import processes, queue, regular, watchdog
from sessions_exec.services import heartbeats, runs
from sessions_exec.services.runs import InHand

logger = logging.getLogger(__name__)

LOOK = 1.0
START_SECONDS = 60.0
# Together less than the 20 seconds within which everything has to be stopped.
DRAIN_SECONDS = 10.0
GIVE_BACK_SECONDS = 3.0
LONGEST_PAUSE = 10.0
# Bytes that a pipe gives at once, if they were written at once.
LONGEST_WORD = 4096
# Others' remains are looked for every so many looks.
DEAD_EVERY = 10


Died = Callable[[str, int, str, str], None]
"""Told of a worker, a process of its that is known to be dead, and the function and argument of the task it was in."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to run and by which rules. The command gets `--parent PID --ready FD`; times are in seconds.

    `died` may free what a dead process held. It must not wait long: nobody looks after the cluster meanwhile.
    """

    worker: str
    command: Sequence[str]
    environment: Mapping[str, str]
    workers: int
    patience: float
    task_timeout: float
    died: Died | None = None


class Supervisor:
    """One cluster's supervisor. `run` belongs to the main thread: the cluster ends with the thread that started it."""

    def __init__(self, plan: Plan, *, stop: threading.Event) -> None:
        self.plan = plan
        self.stop = stop
        self.look_seconds = min(LOOK, plan.patience / 4)
        self.watchdog = watchdog.Watchdog(workers=plan.workers, patience=plan.patience, task_timeout=plan.task_timeout)
        self.cluster: subprocess.Popen[bytes] | None = None
        self.ready: int | None = None
        self.started = 0.0
        self.pause = 0.0
        self.looks = 0
        self.family: frozenset[int] = frozenset()

    def run(self) -> None:
        """Keep a cluster alive until `stop`, then drain it."""
        # A worker of this name may have been here before.
        self._guarded(self._take_over)
        try:
            self._start()
            while not self.stop.wait(self.look_seconds):
                self._guarded(self._look)
        finally:
            self._drain()
            self._guarded(self._leave)

    # --- the cluster's process ---

    def _start(self) -> None:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        command = [*self.plan.command, "--parent", str(os.getpid()), "--ready", str(writer)]
        self.cluster = subprocess.Popen(
            command, env=dict(self.plan.environment), pass_fds=[writer], start_new_session=True
        )
        os.close(writer)
        self._forget_ready()
        self.ready = reader
        self.started = time.monotonic()
        self.watchdog.begin()
        logger.info("cluster started", extra={"action": "cluster.started", "pid": self.cluster.pid})

    def _restart(self, reason: str) -> None:
        logger.error("cluster is started again", extra={"action": "cluster.restarted", "reason": reason})
        self._kill()
        # One that cannot even start is tried less and less often.
        quick = time.monotonic() - self.started < LONGEST_PAUSE
        self.pause = min(LONGEST_PAUSE, self.pause * 2 or 0.25) if quick else 0.0
        self._guarded(lambda: heartbeats.restarted(worker=self.plan.worker, reason=reason))
        self._guarded(self._take_over)
        if not self.stop.wait(self.pause):
            self._start()

    def _kill(self) -> None:
        if self.cluster is not None:
            processes.signal_group(self.cluster.pid, signal.SIGKILL)
            self.cluster.wait()

    def _drain(self) -> None:
        """Let running tasks end, then let them give back what they began, then kill what is left."""
        if self.cluster is None:
            return
        logger.info("cluster is drained", extra={"action": "cluster.draining"})
        self.cluster.terminate()
        if not _ended(self.cluster, DRAIN_SECONDS):
            # Not to the parents of the workers: they would end at once, and the workers with them.
            processes.terminate_leaves(self.cluster.pid)
            _ended(self.cluster, GIVE_BACK_SECONDS)
        self._kill()
        self._forget_ready()

    def _forget_ready(self) -> None:
        if self.ready is not None:
            os.close(self.ready)
            self.ready = None

    def _is_ready(self) -> bool:
        """Whether the cluster has said that it works; it says so once, with its processes, and then closes its end.

        So the death of one before our first look is noticed all the same.
        """
        if self.ready is None:
            return True
        try:
            told = os.read(self.ready, LONGEST_WORD)
        except BlockingIOError:
            return False
        if not told:
            return False
        self._forget_ready()
        self.watchdog.begin(frozenset(map(int, told.split())))
        return True

    # --- looking after it ---

    def _look(self) -> None:
        assert self.cluster is not None  # noqa: S101  # `run` starts it before the first look
        status = self.cluster.poll()
        if status is not None:
            self._beat(False)
            return self._restart(f"the cluster's process ended with status {status}")
        ready = self._is_ready()
        self._beat(ready)
        if not ready:
            if time.monotonic() - self.started > START_SECONDS:
                self._restart(f"the cluster did not begin to work within {START_SECONDS:g} s")
            return None
        reason = self._judged()
        if reason:
            return self._restart(reason)
        self.looks += 1
        if self.looks % DEAD_EVERY == 1:
            for worker in heartbeats.dead():
                _take_over(worker)
            heartbeats.tidy()
        return None

    def _beat(self, ready: bool) -> None:
        self.family = frozenset(process.pid for process in processes.descendants(os.getpid())) if ready else frozenset()
        heartbeats.beat(worker=self.plan.worker, host=socket.gethostname(), pid=os.getpid(), processes=len(self.family))

    def _judged(self) -> str | None:
        in_hand = runs.in_hand(self.plan.worker)
        died = _dead(in_hand)
        for run in died:
            # Also where the database fails in between: a task that died is told of as long as its row is there.
            heartbeats.died(worker=self.plan.worker, task=f"{run.function} {run.argument}".rstrip())
            self._mourn(run)
            runs.forget([run.id])
            logger.error("a worker died in a task", extra={"action": "task.died", "function": run.function})
        living = [run for run in in_hand if run not in died]
        oldest = queue.waiting().oldest
        return self.watchdog.judge(in_hand=living, oldest_waiting=oldest, at=time.monotonic(), processes=self.family)

    def _mourn(self, run: InHand) -> None:
        if self.plan.died is not None:
            self.plan.died(self.plan.worker, run.pid, run.function, run.argument)

    def _take_over(self) -> None:
        """After this worker's cluster has ended: its processes are not only silent, they are gone."""
        for run in _dead(runs.in_hand(self.plan.worker)):
            self._mourn(run)
        _take_over(self.plan.worker)

    def _leave(self) -> None:
        self._take_over()
        heartbeats.ended(self.plan.worker)

    def _guarded(self, act: Callable[[], object]) -> None:
        """Do what needs the database; without it there is nothing to judge, and the cluster waits as we do."""
        try:
            act()
        except (DatabaseError, InterfaceError) as error:
            # One that answers and takes no writes is told of by the ticker, once.
            if not regular.takes_reads_alone(error):
                kind = type(error).__name__
                logger.warning("the database does not answer", extra={"action": "supervisor.no_database", "kind": kind})
            connection.close()


def _dead(in_hand: Sequence[InHand]) -> list[InHand]:
    return [run for run in in_hand if run.pid and not processes.alive(run.pid)]


def _take_over(worker: str) -> None:
    """Let what a dead cluster had pulled and not begun be pulled again, and forget what it had in hand.

    What it had begun comes again by itself: its work is found from state, when its lease has expired.
    """
    left = runs.in_hand(worker)
    queue.give_back(run.delivery for run in left if not run.pid)
    runs.forget([run.id for run in left])


def _ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True
