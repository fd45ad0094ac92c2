"""A worker of a real supervised cluster that is killed in the run it makes: the input is answered all the same."""

from __future__ import annotations

import sys

import pytest

from agentmemory.models import Agent, Message, Session
from sessions_exec.models import Input, ModelCall, Recovery
from sessions_exec.services import own_runs
from tests.factories import SessionFactory
from tests.support import clusters, running
from tests.support.faulty_worker import Orders
from tests.support.model_server import ModelServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

PROGRAM = ("-m", "tests.support.faulty_worker")
# What a dead worker leaves behind is over soon, and is looked for often.
SOON = {
    "AGENTMEMORY_EXECUTION_LEASE": "3",
    "AGENTMEMORY_RECOVERY_SCAN": "0.5",
    "AGENTMEMORY_CADENCE": "3600",
    "AGENTMEMORY_WATCHDOG": "5",
    "ANTHROPIC_API_KEY": "sk-of-tests",
}


def ended(session: Session) -> list[str]:
    """How its turns ended."""
    return list(Message.objects.filter(session=session, type="result").values_list("subtype", flat=True))


def test_s7_s8_a_cluster_whose_worker_is_killed_in_its_run_answers_what_was_sent(
    agent: Agent, server: ModelServer, orders: Orders
) -> None:
    agent.run_here = True
    agent.save()
    session = SessionFactory.create(agent=agent, name="s1")
    orders.give("run.call.after")
    address = {"ANTHROPIC_BASE_URL": server.address, "FAULT_ORDERS": str(orders.folder)}
    with clusters.running("worker", program=PROGRAM, **{**SOON, **address}) as process:
        try:
            running.admit(session, "i1", "Where is the Aurora?")
            clusters.until(lambda: ended(session) and running.is_free(session), within=90)
        finally:
            sys.stdout.write(clusters.output(process)[-4000:])
    assert [point for point, _, _ in orders.done] == ["run.call.after"]
    assert own_runs.wanted(agent) == []
    assert not Input.objects.pending().exists()
    assert Message.objects.filter(session=session, type="assistant", text="Understood.").count() == 1
    assert ended(session) == ["success"]
    assert (Recovery.objects.count(), ModelCall.objects.count(), len(server.requests)) == (1, 2, 2)
    assert Message.objects.filter(session=session, type="system", text__contains="outcome is unknown").count() == 1
