"""The races of passes (D1, D14), each with its negative control: without its guard, the race is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from django.db import connection

from agentmemory.models import Memory
from distillation.models import Cursor, DistillationPass
from distillation.services import distilling, passes
from sessions_exec import faults
from sessions_exec.errors import LeaseHeld
from sessions_exec.leases import LeaseQuerySet
from tests.faults import books
from tests.support import races
from tests.support.model_server import ModelServer, one_memory_per_user_line

pytestmark = pytest.mark.django_db(transaction=True)

T = TypeVar("T")
Took = tuple[distilling.Result, distilling.Result]


def overtaken(cursor: Cursor, point: str) -> Took:
    """One pass comes to `point`, there its lease runs out, another makes the whole pass; then the first goes on."""

    def overtake() -> distilling.Result:
        books.expire_leases()
        return distilling.run_pass(cursor_id=cursor.pk, worker="second")

    return beside(cursor, point, overtake)


def beside(cursor: Cursor, point: str, act: Callable[[], T]) -> tuple[distilling.Result, T]:
    """One pass comes to `point`, there `act` is done; then the pass goes on."""
    there, go = threading.Event(), threading.Event()

    def wait(reached: str) -> None:
        if reached == point and threading.current_thread() is not threading.main_thread() and not there.is_set():
            there.set()
            assert go.wait(races.PATIENCE)

    faults.install(wait)
    try:
        first = races.Actor(lambda: distilling.run_pass(cursor_id=cursor.pk, worker="first"))
        assert there.wait(races.PATIENCE)
        done = act()
        go.set()
        return first.brought(), done
    finally:
        go.set()
        faults.install(None)


@pytest.mark.parametrize("point", ["call.after", "answer.after", "write.before"])
def test_d14_a_pass_that_was_overtaken_writes_nothing(server: ModelServer, cursor: Cursor, point: str) -> None:
    first, second = overtaken(cursor, point)
    assert (first.state, second.state) == ("lost", "applied")
    assert Memory.objects.count() == 3
    assert set(Memory.objects.values_list("version", flat=True)) == {1}
    assert DistillationPass.objects.filter(outcome="applied").count() == 1


def test_d14_without_the_fence_a_stale_pass_lands(
    server: ModelServer, cursor: Cursor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: neither the fence nor the condition on epoch and position; the window is applied twice."""
    monkeypatch.setattr(LeaseQuerySet, "fence", lambda *args, **kwargs: None)
    monkeypatch.setattr(LeaseQuerySet, "fence_now", lambda *args, **kwargs: None)
    monkeypatch.setattr(passes, "advance", unguarded_advance)
    first, second = overtaken(cursor, "call.after")
    assert (first.state, second.state) == ("applied", "applied")
    assert DistillationPass.objects.filter(outcome="applied").count() == 2


def unguarded_advance(cursor: Cursor, end: int, *, more: bool) -> None:
    Cursor.objects.filter(pk=cursor.pk).update(position=end, attempts=0, holder="", expires_at=None)


def moved_beneath(cursor: Cursor) -> tuple[str, int, int]:
    """What becomes of a pass whose position is moved by somebody else after it wrote, and before it commits: its
    state, the position, and its memories. The fence lets such a move pass, which changes no key."""

    def move() -> None:
        Cursor.objects.filter(pk=cursor.pk).update(position=2)

    found, _ = beside(cursor, "write.after", move)
    return found.state, Cursor.objects.get(pk=cursor.pk).position, Memory.objects.count()


def test_d1_a_position_that_has_moved_is_not_moved_again(server: ModelServer, cursor: Cursor) -> None:
    """The last guard by itself: a cursor that stands elsewhere than it was read undoes what the pass wrote."""
    assert moved_beneath(cursor) == ("lost", 2, 0)


def test_d1_without_the_condition_on_the_position_it_moves_over_another_pass(
    server: ModelServer, cursor: Cursor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the position is set from where it was read, over what was written since."""
    monkeypatch.setattr(passes, "advance", unguarded_advance)
    assert moved_beneath(cursor) == ("applied", 4, 3)


def acquire_all(cursor: Cursor, hands: int = 6) -> list[Any]:
    def one(number: int) -> Callable[[], int]:
        return lambda: Cursor.objects.acquire(cursor.pk, holder=f"worker {number}", seconds=60)

    return races.outcomes(races.at_once([one(number) for number in range(hands)]))


def test_d14_of_many_workers_at_once_one_gets_the_lease(cursor: Cursor) -> None:
    found = acquire_all(cursor)
    assert [each for each in found if isinstance(each, int)] == [1]
    assert sum(isinstance(each, LeaseHeld) for each in found) == 5


def test_d14_without_the_condition_that_it_is_free_all_of_them_hold_the_lease(
    cursor: Cursor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LeaseQuerySet, "free", lambda self: self)
    assert sorted(acquire_all(cursor)) == [1, 2, 3, 4, 5, 6]


def test_d14_two_workers_at_once_on_one_cursor_pay_once(server: ModelServer, cursor: Cursor) -> None:
    run = lambda: distilling.run_cursor(cursor_id=cursor.pk)  # noqa: E731
    found = races.outcomes(races.at_once([run, run, run]))
    assert sorted(each.state for each in found)[0] == "applied"
    assert {each.state for each in found} <= {"applied", "running", "idle"}
    books.check(server)
    assert len(server.requests) == 1


@pytest.mark.parametrize("fence", [True, False], ids=["with the fence", "without it"])
def test_d14_a_take_over_waits_for_the_transaction_that_the_lease_guards(
    cursor: Cursor, fence: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`FOR KEY SHARE` makes it wait. The control: a plain look at the lease lets it go by in the midst of the write."""
    epoch = Cursor.objects.acquire(cursor.pk, holder="first", seconds=60)
    if not fence:
        monkeypatch.setattr(LeaseQuerySet, "fence", LeaseQuerySet.fence_now)
    first = races.Paused(lambda: Cursor.objects.fence(cursor.pk, epoch=epoch))
    Cursor.objects.filter(pk=cursor.pk).update(expires_at="2020-01-01T00:00Z")
    second = races.Actor(lambda: Cursor.objects.acquire(cursor.pk, holder="second", seconds=60))
    assert second.waits() is fence
    first.go_on().brought()
    assert second.brought() == epoch + 1


def test_d1_no_transaction_and_no_connection_is_held_during_a_call(server: ModelServer, cursor: Cursor) -> None:
    """A2: what the database sees of a pass that waits for its answer is nothing."""
    seen: list[int] = []

    def look(point: str) -> None:
        if point == "call.before":
            seen.append(len(server.requests))

    def count(_: object) -> Any:
        with connection.cursor() as sql:
            sql.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
                "AND backend_type = 'client backend'"
            )
            seen.append(sql.fetchone()[0])
        connection.close()
        return one_memory_per_user_line(server.requests[-1])

    connection.close()
    server.default = count
    faults.install(look)
    try:
        assert distilling.run_pass(cursor_id=cursor.pk).state == "applied"
    finally:
        faults.install(None)
    assert seen == [0, 0]
