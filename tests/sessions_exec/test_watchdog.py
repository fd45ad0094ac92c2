"""When a cluster has to be started again, and when it is merely busy (A3)."""

from __future__ import annotations

import pytest

from sessions_exec.services.runs import InHand
from sessions_exec.watchdog import OVERRUN, Watchdog


def dog() -> Watchdog:
    return Watchdog(workers=2, patience=60, task_timeout=600)


def run(*, pid: int = 1, age: float = 1) -> InHand:
    return InHand(id=1, function="a.b", delivery=1, pid=pid, age=age)


def test_a_cluster_without_work_is_left_alone() -> None:
    watchdog = dog()
    assert [watchdog.judge(in_hand=[], oldest_waiting=None, at=at) for at in (0, 1000)] == [None, None]


def test_a3_a_task_that_lies_while_a_worker_is_free_ends_the_patience() -> None:
    watchdog = dog()
    assert watchdog.judge(in_hand=[run()], oldest_waiting=7, at=0) is None
    assert watchdog.judge(in_hand=[run()], oldest_waiting=7, at=60) is None
    assert "although a worker is free" in str(watchdog.judge(in_hand=[run()], oldest_waiting=7, at=61))


def test_a3_a_queue_that_moves_is_worked_off() -> None:
    watchdog = dog()
    assert not any(watchdog.judge(in_hand=[], oldest_waiting=at, at=at) for at in range(0, 600, 50))


def test_a3_a_busy_cluster_is_not_a_stuck_one() -> None:
    watchdog = dog()
    busy = [run(age=500), run(age=500)]
    assert not any(watchdog.judge(in_hand=busy, oldest_waiting=7, at=at) for at in range(0, 600, 50))
    assert watchdog.judge(in_hand=[run()], oldest_waiting=7, at=600) is None


@pytest.mark.parametrize(("age", "ends"), [(59, False), (61, True)])
def test_a3_a_task_that_was_pulled_and_is_not_begun_ends_the_patience(age: float, ends: bool) -> None:
    """So it is after the death of an idle worker process, which held the lock of the local queue."""
    reason = dog().judge(in_hand=[run(pid=0, age=age)], oldest_waiting=None, at=0)
    assert bool(reason) == ends


@pytest.mark.parametrize(("age", "ends"), [(600 + OVERRUN, False), (601 + OVERRUN, True)])
def test_a3_a_task_that_outlives_its_timeout_ends_the_patience(age: float, ends: bool) -> None:
    reason = dog().judge(in_hand=[run(age=age)], oldest_waiting=None, at=0)
    assert bool(reason) == ends


def test_a_new_cluster_is_judged_from_its_own_begin() -> None:
    watchdog = dog()
    watchdog.judge(in_hand=[], oldest_waiting=7, at=0)
    watchdog.begin()
    assert watchdog.judge(in_hand=[], oldest_waiting=7, at=100) is None
