"""`distill` in real processes, killed at every point of a pass; then the books are checked (D1, D14, D15, D20)."""

from __future__ import annotations

import signal
import sys
from collections import Counter

import psutil
import pytest

from agentmemory.models import Agent, Memory
from distillation.models import Cursor, DistillationPass
from tests.faults import books
from tests.faults.conftest import ROUNDS, Distil
from tests.support import clusters, faulty_worker
from tests.support.faulty_worker import POINTS, Orders
from tests.support.model_server import ModelServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

KILLED = -signal.SIGKILL


def settle(distil: Distil, *, most: int = 40) -> Counter[int]:
    """Start process after process until one comes to its end; how often each exit status was seen."""
    statuses: Counter[int] = Counter()
    for _ in range(most):
        process = distil()
        process.join(30)
        assert process.exitcode is not None
        statuses[process.exitcode] += 1
        books.expire_leases()
        if process.exitcode == 0 and not Cursor.objects.behind().exists():
            return statuses
    raise AssertionError(f"never at an end: {statuses}")


def test_d1_a_process_killed_at_each_point_in_turn_loses_and_doubles_nothing(
    server: ModelServer, agent: Agent, distil: Distil, orders: Orders
) -> None:
    for point in POINTS:
        before = len(server.requests)
        books.tell(agent, point, turns=1)
        orders.give(point)
        assert settle(distil)[KILLED] == 1, point
        # Only a call whose answer never came to be stored is made again.
        assert len(server.requests) - before == 1 + (point in {"call.after", "answer.before"}), point
    assert {point for point, _, _ in orders.done} == set(POINTS)
    assert books.check(server).calls_again == 2


@pytest.mark.parametrize("number", range(ROUNDS))
def test_d1_processes_killed_at_random_lose_and_double_nothing(
    number: int, server: ModelServer, agent: Agent, distil: Distil, orders: Orders
) -> None:
    for name in ("s1", "s2"):
        books.tell(agent, name, turns=3)
    orders.give(faulty_worker.ANYWHERE, times=6)
    statuses = settle(distil)
    ledger = books.check(server)
    places = ", ".join(f"{point} {count}" for point, count in sorted(Counter(p for p, _, _ in orders.done).items()))
    sys.stdout.write(f"round {number + 1}: killed {statuses[KILLED]} times ({places}); {ledger}\n")


@pytest.mark.parametrize("point", ["window.after", "call.after", "answer.after"])
def test_d14_a_process_stopped_for_longer_than_its_lease_writes_nothing(
    point: str, server: ModelServer, agent: Agent, distil: Distil, orders: Orders
) -> None:
    books.tell(agent, "s1", turns=1)
    orders.give(point, "stop")
    sleeper = distil()
    clusters.until(lambda: sleeper.pid is not None and psutil.Process(sleeper.pid).status() == psutil.STATUS_STOPPED)
    books.expire_leases()
    other = distil()
    other.join(30)
    assert other.exitcode == 0
    before = Memory.objects.count(), DistillationPass.objects.filter(outcome="applied").count()
    assert before == (3, 1)
    assert sleeper.pid is not None
    psutil.Process(sleeper.pid).resume()
    sleeper.join(30)
    assert sleeper.exitcode == 0
    assert (Memory.objects.count(), DistillationPass.objects.filter(outcome="applied").count()) == before
    _check_all_but_payments(server, paid_twice=point in {"window.after", "call.after"})


def _check_all_but_payments(server: ModelServer, *, paid_twice: bool) -> None:
    """Two processes may have paid for one window, where the lease ran out during the call; then each is on record."""
    assert len(server.requests) == 1 + paid_twice
    assert sum(DistillationPass.objects.values_list("input_tokens", flat=True)) == 100 * len(server.requests)
    if not paid_twice:
        books.check(server)


def test_d14_a_process_stopped_within_its_last_transaction_holds_the_fence_and_applies_once(
    server: ModelServer, agent: Agent, distil: Distil, orders: Orders
) -> None:
    """The lease cannot be taken over while the transaction that it guards is open: the other one waits."""
    books.tell(agent, "s1", turns=1)
    orders.give("write.after", "stop")
    sleeper = distil()
    clusters.until(lambda: sleeper.pid is not None and psutil.Process(sleeper.pid).status() == psutil.STATUS_STOPPED)
    Cursor.objects.update(expires_at="2020-01-01T00:00Z")
    other = distil()
    other.join(1.5)
    assert other.exitcode is None
    assert sleeper.pid is not None
    psutil.Process(sleeper.pid).resume()
    for process in (sleeper, other):
        process.join(30)
        assert process.exitcode == 0
    books.check(server)


@pytest.mark.parametrize("point", ["lease.after", "call.before", "write.after"])
def test_d20_a_process_that_is_asked_to_stop_gives_its_attempt_back(
    point: str, server: ModelServer, agent: Agent, distil: Distil, orders: Orders
) -> None:
    books.tell(agent, "s1", turns=1)
    orders.give(point, "terminate")
    process = distil()
    process.join(30)
    assert process.exitcode == 128 + signal.SIGTERM
    cursor = Cursor.objects.get()
    assert (cursor.attempts, cursor.failures, cursor.window_failures) == (0, 0, 0)
    assert (cursor.holder, cursor.expires_at, cursor.next_attempt_at) == ("", None, None)
    # Nothing has to run out: the next one begins at once, and pays only for what was not stored.
    second = distil()
    second.join(30)
    assert books.check(server).calls == 1


def test_d14_two_processes_at_once_on_one_session_pay_once(
    server: ModelServer, agent: Agent, distil: Distil, orders: Orders
) -> None:
    books.tell(agent, "s1", turns=4)
    both = [distil(), distil()]
    for process in both:
        process.join(30)
        assert process.exitcode == 0
    settle(distil)
    assert books.check(server).calls_again == 0
