"""When a cluster has to be started again, and when it is merely busy (A3)."""

from __future__ import annotations

import pytest

from sessions_exec.services.runs import InHand
from sessions_exec.watchdog import HURRY, OVERRUN, Watchdog


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
    # It could not be begun: no worker is free for it.
    assert watchdog.judge(in_hand=[*busy, run(pid=0, age=500)], oldest_waiting=None, at=600) is None


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


# --- after a death ---

WHOLE, OTHERS = {1, 2, 3}, {1, 2, 4}
"""The cluster's processes, and those after the third has died and been replaced."""


def looked_at(watchdog: Watchdog, *in_hand: InHand, processes: set[int], looks: int) -> list[str]:
    """What a watchdog that looks each second says of what stays as it is, for so many looks."""
    said = [watchdog.judge(in_hand=in_hand, oldest_waiting=None, at=at, processes=processes) for at in range(looks)]
    return [reason for reason in said if reason]


def unbegun(id: int = 9) -> InHand:  # noqa: A002
    return InHand(id=id, function="a.b", delivery=1, pid=0, age=1)


def test_a3_a_task_that_nobody_begins_after_a_death_is_waited_for_a_few_looks_and_no_minute() -> None:
    watchdog = dog()
    assert not looked_at(watchdog, processes=WHOLE, looks=1)
    assert not looked_at(watchdog, unbegun(), processes=OTHERS, looks=HURRY - 1)
    assert "a process of the cluster died" in looked_at(watchdog, unbegun(), processes=OTHERS, looks=1)[0]


def test_a3_the_death_of_an_idle_process_is_remembered_until_a_task_comes() -> None:
    watchdog = dog()
    looked_at(watchdog, processes=WHOLE, looks=1)
    assert not looked_at(watchdog, processes=OTHERS, looks=1000)
    assert len(looked_at(watchdog, unbegun(), processes=OTHERS, looks=HURRY)) == 1


def test_a3_a_death_before_the_first_look_is_noticed_by_what_the_cluster_has_told() -> None:
    watchdog = dog()
    watchdog.begin(WHOLE)
    assert not looked_at(watchdog, unbegun(), processes=OTHERS, looks=HURRY - 1)
    assert "a process of the cluster died" in looked_at(watchdog, unbegun(), processes=OTHERS, looks=1)[0]


def test_a3_without_a_death_a_task_that_is_not_begun_has_all_of_our_patience() -> None:
    assert not looked_at(dog(), unbegun(), processes=WHOLE, looks=50)


def test_a3_a_task_begun_after_a_death_shows_that_the_queue_is_sound() -> None:
    watchdog = dog()
    looked_at(watchdog, run(), processes=WHOLE, looks=1)
    looked_at(watchdog, run(), processes=OTHERS, looks=1)
    begun = InHand(id=2, function="a.b", delivery=2, pid=4, age=1)
    looked_at(watchdog, run(), begun, processes=OTHERS, looks=1)
    assert not looked_at(watchdog, run(), unbegun(), processes=OTHERS, looks=50)


def test_a3_tasks_that_are_begun_one_after_another_after_a_death_are_no_reason() -> None:
    watchdog = dog()
    looked_at(watchdog, processes=WHOLE, looks=1)
    for id in range(50):  # noqa: A001
        assert not looked_at(watchdog, unbegun(id), processes=OTHERS, looks=HURRY - 1)


def test_a3_a_busy_cluster_is_not_ended_for_a_death() -> None:
    """Both workers have work: the third task was pulled by one that died, and waits for either of them."""
    watchdog = dog()
    busy = [run(), InHand(id=2, function="a.b", delivery=2, pid=2, age=1)]
    looked_at(watchdog, *busy, processes=WHOLE, looks=1)
    assert not looked_at(watchdog, *busy, unbegun(), processes=OTHERS, looks=50)
