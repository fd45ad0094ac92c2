"""`run_agent` in real processes, killed at every point of a step, or asked to stop in the midst of a call (S6 to S8).

The model does as it should with what it is shown: it writes one memory down, looks first where an outcome is unknown,
and then says that it is done.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.process import BaseProcess

import pytest

from agentmemory.models import Agent, MemoryEvent, Message, Session
from sessions_exec.models import Input, ModelCall, Recovery
from sessions_exec.services import own_runs
from tests.factories import SessionFactory
from tests.faults.conftest import Begin
from tests.support import clusters, model_server, running
from tests.support.faulty_worker import Orders
from tests.support.model_server import ModelServer, Recorded, Reply

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

Run = Callable[..., BaseProcess]
KILLED = -signal.SIGKILL
# Where a process dies, the calls that are then made and booked (the one that is lost among them), and what the next
# model is told of.
POINTS: dict[str, tuple[int, str]] = {
    "run.call.before": (2, "Its outcome is unknown"),
    "run.call.after": (3, "Its outcome is unknown"),
    "run.tools.before": (4, "outcome unknown"),
    "run.tools.before_commit": (4, "outcome unknown"),
    "run.tools.after": (2, ""),
}


def sensible(request: Recorded) -> Reply:
    """What a model answers to what it is shown."""
    results = [block for message in request.body["messages"] for block in message["content"] if "tool_use_id" in block]
    if not results:
        return calling("memory_write", key="aurora", content="The Aurora is blue.")(request)
    if results[-1].get("is_error"):
        return calling("memory_read", key="aurora")(request)
    if '"found": false' in results[-1]["content"]:
        return calling("memory_write", key="aurora", content="The Aurora is blue.")(request)
    return model_server.streamed("It is ", "written down.")(request)


def calling(name: str, **given: str) -> model_server.Behaviour:
    return lambda request: model_server.streamed(
        calls=[{"id": f"toolu_{len(request.body['messages'])}", "name": name, "input": given}]
    )(request)


@pytest.fixture
def session(agent: Agent, server: ModelServer) -> Session:
    server.default = sensible
    session = SessionFactory.create(agent=agent, name="s1")
    running.admit(session, "i1", "Remember that the Aurora is blue.")
    return session


@pytest.fixture
def run(begin: Begin) -> Run:
    return functools.partial(begin, ["run_agent", "--space", "acme", "--agent", "ada", "--once"])


def comes_to(process: BaseProcess, status: int) -> None:
    process.join(30)
    assert process.exitcode == status


def shown(server: ModelServer) -> str:
    """Everything that the newest call was shown."""
    return str(server.requests[-1].body["messages"])


def told(session: Session) -> str:
    """Everything that the transcript says, outcomes of tools included."""
    rows = Message.objects.filter(session=session).order_by("seq")
    return "\n".join(f"{each.text} {each.tool_outcomes}" for each in rows)


def check(session: Session, server: ModelServer) -> None:
    """What must be once is once, and every call that was made is on record."""
    assert running.is_free(session)
    assert own_runs.wanted(session.agent) == []
    assert not Input.objects.pending().exists()
    assert list(MemoryEvent.objects.values_list("content", "version")) == [("The Aurora is blue.", 1)]
    answers = Message.objects.filter(session=session, type="assistant", text="It is written down.")
    assert (answers.count(), Message.objects.filter(session=session, uid="i1").count()) == (1, 1)
    ends = Message.objects.filter(session=session, type="result").values_list("subtype", flat=True)
    assert list(ends) == ["success"]
    assert ModelCall.objects.count() == len(server.requests)


@pytest.mark.parametrize("point", POINTS)
def test_s7_s8_a_run_that_is_killed_at_a_point_is_gone_on_with_and_does_nothing_twice(
    point: str, session: Session, server: ModelServer, orders: Orders, run: Run
) -> None:
    calls, unknown = POINTS[point]
    orders.give(point)
    comes_to(run(), KILLED)
    assert MemoryEvent.objects.count() == (point == "run.tools.after")
    running.expire(session)
    comes_to(run(), 0)
    check(session, server)
    assert len(server.requests) == calls
    assert Recovery.objects.count() == bool(unknown)
    assert unknown in shown(server)
    assert unknown in told(session)
    assert set(ModelCall.objects.values_list("outcome", "epoch")) <= {("answered", 1), ("answered", 2)}


def test_s8_a_run_that_is_killed_while_the_answer_comes_leaves_a_call_on_record_that_never_ended(
    session: Session, server: ModelServer, run: Run
) -> None:
    server.script(model_server.streamed("Half an ", "answer", gate=threading.Event()))
    process = run()
    clusters.until(lambda: server.requests)
    process.kill()
    comes_to(process, KILLED)
    lost = ModelCall.objects.get()
    assert (lost.outcome, lost.finished_at) == ("running", None)
    running.expire(session)
    comes_to(run(), 0)
    check(session, server)
    assert "Its outcome is unknown" in shown(server)
    lost.refresh_from_db()
    assert lost.outcome == "running"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_s6_a_run_that_is_asked_to_stop_while_the_answer_comes_hands_over_within_seconds(
    number: signal.Signals, session: Session, server: ModelServer, run: Run
) -> None:
    server.script(model_server.streamed("Half an ", "answer", gate=threading.Event()))
    process = run()
    clusters.until(lambda: server.requests)
    assert process.pid is not None
    os.kill(process.pid, number)
    comes_to(process, 128 + number)
    # Nothing has to run out: the next one goes on at once.
    assert running.is_free(session)
    comes_to(run(), 0)
    check(session, server)
    assert "was stopped in order between two steps" in shown(server)
    assert not Recovery.objects.exists()
    assert list(ModelCall.objects.order_by("pk").values_list("outcome", "failure")) == [
        ("failed", "stopped"), ("answered", ""), ("answered", ""),
    ]  # fmt: skip
