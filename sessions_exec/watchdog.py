"""When a task cluster that looks alive has to be started again. Pure."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from sessions_exec.services.runs import InHand

# What a task gets beyond its timeout before its whole cluster is ended with it.
OVERRUN = 15.0
# So many looks in a row may find a task not begun, where one of the cluster's processes has died. Counted in looks:
# while the database answers nobody, nobody looks.
HURRY = 5


@dataclass(kw_only=True)
class Watchdog:
    """Judges one cluster by what it has in hand and by what it leaves lying. Times are in seconds.

    A busy cluster is not a stuck one: it is stuck when it could work and does not. A process that dies while it waits
    for a task takes the lock of the local queue with it, and with that all others' work: after a death our patience is
    short, until a task is seen that was begun since.
    """

    workers: int
    patience: float
    task_timeout: float
    _left_lying: tuple[int, float] | None = field(default=None, init=False)
    _seen: Set[int] = field(default=frozenset(), init=False)
    _begun_before: Set[int] | None = field(default=None, init=False)
    _unbegun: dict[int, int] = field(default_factory=dict, init=False)

    def judge(
        self, *, in_hand: Sequence[InHand], oldest_waiting: int | None, at: float, processes: Set[int] = frozenset()
    ) -> str | None:
        """Why the cluster has to be started again, or nothing.

        `at` is a clock that only goes forward, `processes` are the ids of the cluster's living ones.
        """
        suspect = self._suspects(in_hand, processes)
        running = [run for run in in_hand if run.pid]
        overrun = [run for run in running if run.age > self.task_timeout + OVERRUN]
        if overrun:
            return f"{overrun[0].function} has outlived its timeout of {self.task_timeout:g} s"
        lost = [run for run in in_hand if not run.pid and run.age > self.patience]
        if lost and len(running) < self.workers:
            return f"{lost[0].function} was pulled {lost[0].age:.0f} s ago and no worker begins it"
        if suspect is not None and len(running) < self.workers:
            return f"{suspect.function} was pulled, a process of the cluster died, and no worker begins it"
        if self._lies(oldest_waiting if len(in_hand) < self.workers else None, at):
            return f"a task has waited for {self.patience:g} s although a worker is free"
        return None

    def begin(self, processes: Set[int] = frozenset()) -> None:
        """Forget what was seen: another cluster has begun, with these `processes`, as far as it has told."""
        self._left_lying = self._begun_before = None
        self._seen = processes

    def _suspects(self, in_hand: Sequence[InHand], processes: Set[int]) -> InHand | None:
        """A task that nobody has begun for several looks, since a process died."""
        begun = {run.id for run in in_hand if run.pid}
        if self._seen - processes:
            self._begun_before, self._unbegun = begun, {}
        elif self._begun_before is not None and begun - self._begun_before:
            self._begun_before = None
        self._seen = processes
        waiting = [run for run in in_hand if not run.pid] if self._begun_before is not None else []
        self._unbegun = {run.id: self._unbegun.get(run.id, 0) + 1 for run in waiting}
        return next((run for run in waiting if self._unbegun[run.id] >= HURRY), None)

    def _lies(self, oldest: int | None, at: float) -> bool:
        """Whether the same task has been the oldest, and a worker free for it, for longer than our patience."""
        if oldest is None:
            self._left_lying = None
            return False
        if self._left_lying is None or self._left_lying[0] != oldest:
            self._left_lying = (oldest, at)
        return at - self._left_lying[1] > self.patience
