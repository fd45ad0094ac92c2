"""A real supervised cluster whose processes are killed in their passes: the work goes on, and the books are right."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from django_q.models import OrmQ

from agentmemory.models import Agent, Memory
from distillation.models import Cursor, DistillationPass, Quarantine
from distillation.services import coordinator
from sessions_exec import queue
from sessions_exec.models import Heartbeat
from tests.factories import AgentFactory
from tests.faults import books
from tests.faults.conftest import ROUNDS
from tests.support import clusters, model_server
from tests.support.faulty_worker import POINTS, Orders
from tests.support.model_server import ModelServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

AFTER = [point for point in POINTS if point.endswith(".after")]
PROGRAM = ("-m", "tests.support.faulty_worker")
# A lease that a dead worker leaves behind is over soon, and the coordinator looks often.
SOON = {
    "AGENTMEMORY_CALL_TIMEOUT": "1.5",
    "AGENTMEMORY_CURSOR_LEASE": "1.8",
    "AGENTMEMORY_CADENCE": "0.5",
    "AGENTMEMORY_BACKOFF_BASE": "0.2",
    "AGENTMEMORY_TASK_TIMEOUT": "30",
    "AGENTMEMORY_WATCHDOG": "5",
    "AGENTMEMORY_MESSAGES_PER_PASS": "4",
    "ANTHROPIC_API_KEY": "sk-of-tests",
}


@pytest.fixture
def worker(server: ModelServer, orders: Orders, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    request.getfixturevalue("transactional_db")
    more = getattr(request, "param", {})
    address = {"ANTHROPIC_BASE_URL": server.address, "FAULT_ORDERS": str(orders.folder)}
    with clusters.running("worker", program=PROGRAM, **{**SOON, **address, **more}) as process:
        try:
            yield process
        finally:
            sys.stdout.write(clusters.output(process)[-4000:])


def settled() -> bool:
    return not Cursor.objects.behind().exists() and not Cursor.objects.filter(holder__gt="").exists()


@pytest.mark.parametrize("worker", [{"AGENTMEMORY_QUARANTINE_AFTER": "1000"}], indirect=True)
def test_d1_a_cluster_whose_workers_are_killed_at_each_point_loses_and_doubles_nothing(
    agent: Agent, server: ModelServer, orders: Orders, worker: subprocess.Popen[str]
) -> None:
    for point in POINTS if ROUNDS > 2 else AFTER:
        orders.give(point)
    for handle in ("grace", "hedy"):
        other = AgentFactory.create(handle=handle, space=agent.space)
        books.tell(other, f"of-{handle}", turns=4)
    books.tell(agent, "s1", turns=4)
    clusters.until(lambda: not orders.left and settled(), within=90)
    books.check(server)


SELDOM = {"AGENTMEMORY_CADENCE": "3600", "AGENTMEMORY_BACKOFF_BASE": "1800", "AGENTMEMORY_CURSOR_LEASE": "300"}


@pytest.mark.parametrize("worker", [SELDOM], indirect=True)
def test_d14_what_was_asked_for_goes_on_when_its_worker_is_killed_and_not_when_its_lease_is_over(
    agent: Agent, server: ModelServer, orders: Orders, worker: subprocess.Popen[str]
) -> None:
    orders.give("answer.after")
    coordinator.request(session=books.tell(agent, "s1", turns=4))
    clusters.until(lambda: bool(orders.done) and settled(), within=90)
    assert books.check(server).calls_again == 0
    assert Heartbeat.objects.get().deaths == 1


@pytest.mark.parametrize("worker", [{"AGENTMEMORY_QUARANTINE_AFTER": "2"}], indirect=True)
def test_d22_a_message_that_kills_its_worker_each_time_ends_in_quarantine_and_the_rest_goes_on(
    agent: Agent, server: ModelServer, orders: Orders, worker: subprocess.Popen[str]
) -> None:
    session = books.tell(agent, "s1", turns=1, per_turn=1)
    orders.give("call.before", times=50)
    clusters.until(lambda: settled() and Quarantine.objects.exists(), within=90)
    orders.cancel()
    assert len(orders.done) == 2
    books.tell(agent, "s1", turns=1)
    clusters.until(lambda: Memory.objects.count() == 3 and settled(), within=90)
    held = Quarantine.objects.get()
    assert (held.seq, held.state, held.cursor.session_id) == (1, "held", session.pk)
    assert "died" in held.error
    assert DistillationPass.objects.filter(failure="killed").count() == 2


def test_d20_a_worker_that_is_asked_to_stop_gives_the_attempts_of_its_calls_back(
    agent: Agent, server: ModelServer, orders: Orders
) -> None:
    """Its calls take longer than a drain: they are broken off, and count for nothing."""
    for name in ("s1", "s2", "s3"):
        books.tell(agent, name, turns=1)
    server.default = model_server.hang(60)
    long = {**SOON, "AGENTMEMORY_CALL_TIMEOUT": "60", "AGENTMEMORY_CURSOR_LEASE": "90"}
    long["AGENTMEMORY_TASK_TIMEOUT"] = "120"
    address = {"ANTHROPIC_BASE_URL": server.address, "FAULT_ORDERS": str(orders.folder)}
    with clusters.running("worker", program=PROGRAM, **{**long, **address}) as process:
        clusters.until(lambda: len(server.requests) == 3, within=90)
        clusters.stop(process)
    for cursor in Cursor.objects.all():
        assert (cursor.attempts, cursor.failures, cursor.holder, cursor.position) == (0, 0, "", 0)
    assert set(DistillationPass.objects.values_list("failure", flat=True)) == {"stopped"}


@pytest.mark.parametrize("worker", [{"AGENTMEMORY_CADENCE": "3600", "AGENTMEMORY_BACKOFF_BASE": "1800"}], indirect=True)
def test_d22_the_same_task_delivered_many_times_at_the_same_moment_pays_once(
    agent: Agent, server: ModelServer, worker: subprocess.Popen[str]
) -> None:
    books.tell(agent, "s1", turns=3)
    queue.enqueue_many(coordinator.TASK, [agent.pk] * 6)
    clusters.until(lambda: settled() and not OrmQ.objects.exists(), within=90)
    assert books.check(server).calls_again == 0
