"""What a run does beside its work: it renews, hears of an interruption, and stops when the session is its no longer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError, connection

from agentmemory.models import Message, Session
from sessions_exec.errors import LeaseLost
from sessions_exec.llm.messages import CallStopped, ConversationReply
from sessions_exec.models import Execution, Input
from sessions_exec.querysets import ExecutionQuerySet
from sessions_exec.runner import holding, runs
from sessions_exec.services import executions
from tests.factories import SessionFactory
from tests.support.running import admit, expire, is_free, row, transcript
from tests.support.scripted import ScriptedModel, said

pytestmark = pytest.mark.django_db(transaction=True)

Patch = pytest.MonkeyPatch
# Seconds in which somebody who looks has looked again and again.
SOME_LOOKS = 0.5


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(holding, "LONGEST_LOOK", 0.05)
    return SessionFactory.create()


def run(session: Session, model: ScriptedModel) -> str:
    return runs.run(session=session, model=model).state


def test_s6_a_call_is_made_only_after_the_answered_move_to_unknown(session: Session) -> None:
    admit(session, "i1")
    phases: list[str] = []

    def answer(_stop: threading.Event) -> ConversationReply:
        assert not connection.in_atomic_block
        phases.append(row(session).phase)
        return said("Yes.")

    run(session, ScriptedModel(answer))
    assert phases == ["unknown"]


class Broken:
    """A call that lasts until it is broken off; where it is not, it comes to its end some looks later."""

    def __init__(self, meanwhile: Callable[[], object], *, patience: float = 20.0) -> None:
        self.meanwhile, self.patience = meanwhile, patience
        self.off = False

    def __call__(self, stop: threading.Event) -> ConversationReply:
        self.meanwhile()
        self.off = stop.wait(self.patience)
        if self.off:
            raise CallStopped(text="Half an answer")
        return said("A whole answer.")


def taken_over(session: Session) -> None:
    expire(session)
    executions.acquire(session=session, holder="another", seconds=30)


def test_s3_whose_lease_is_taken_in_the_midst_of_a_call_writes_nothing(session: Session) -> None:
    admit(session, "i1")
    call = Broken(lambda: taken_over(session))
    assert run(session, ScriptedModel(call)) == "lost"
    assert call.off
    assert row(session).holder == "another"
    assert not Message.objects.filter(session=session, type="assistant").exists()


def test_control_without_looks_a_call_goes_on_whose_lease_is_taken_and_the_fence_refuses_its_answer(
    session: Session, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(holding.Holding, "_look", lambda self: None)
    admit(session, "i1")
    call = Broken(lambda: taken_over(session), patience=SOME_LOOKS)
    assert run(session, ScriptedModel(call)) == "lost"
    assert not call.off
    assert not Message.objects.filter(session=session, type="assistant").exists()


def test_control_without_looks_and_fence_a_late_answer_is_written_beside_the_next_holder(
    session: Session, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(holding.Holding, "_look", lambda self: None)
    for fence in ("hold", "set_while_held", "renew"):
        monkeypatch.setattr(ExecutionQuerySet, fence, lambda *_, **__: None)
    monkeypatch.setattr(executions, "renew", lambda **_: row(session))
    admit(session, "i1")
    call = Broken(lambda: taken_over(session), patience=0)
    run(session, ScriptedModel(call, said("And on it goes.")))
    assert row(session).holder == "another"
    assert "A whole answer." in str(transcript(session))


@pytest.fixture
def unreachable(session: Session, monkeypatch: Patch) -> Callable[[], None]:
    """From when it is called the database is out of reach for the thread that renews, and most of the term is over."""
    here = threading.current_thread()
    passed = [0.0]
    real = executions.renew

    def renew(**values: Any) -> Execution:
        if passed[0] and threading.current_thread() is not here:
            raise OperationalError("the server is gone")
        return real(**values)

    def begin() -> None:
        passed[0] = 26.0

    monkeypatch.setattr(executions, "renew", renew)
    monkeypatch.setattr(holding, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0]))
    return begin


def test_s3_a_call_whose_lease_cannot_be_renewed_is_broken_off_before_the_term_is_over(
    session: Session, unreachable: Callable[[], None]
) -> None:
    admit(session, "i1")
    call = Broken(unreachable)
    assert run(session, ScriptedModel(call)) == "lost"
    assert call.off
    assert [each[0] for each in transcript(session)] == ["user"]


def test_control_without_its_own_clock_the_call_goes_on_into_the_time_of_others(
    session: Session, unreachable: Callable[[], None], monkeypatch: Patch
) -> None:
    monkeypatch.setattr(holding, "LONGEST_MARGIN", -1_000.0)
    admit(session, "i1")
    call = Broken(unreachable, patience=SOME_LOOKS)
    run(session, ScriptedModel(call))
    assert not call.off


def test_the_work_stops_by_itself_when_little_time_is_left(session: Session) -> None:
    """Whoever cannot reach the database hears of nothing: its own clock tells it."""
    execution = executions.acquire(session=session, holder="me", seconds=30)
    held = holding.Holding(session, execution, since=time.monotonic() - 24.5)
    held.check()
    short = holding.Holding(session, execution, since=time.monotonic() - 25.5)
    with pytest.raises(LeaseLost):
        short.move("unknown")
    assert short.halt.is_set()
    assert row(session).phase == "ready"


def test_the_lease_is_renewed_beside_the_call(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    admit(session, "i1")
    renewed = threading.Event()
    renew = executions.renew

    def noted(**values: Any) -> Execution:
        if "phase" not in values:
            renewed.set()
        return renew(**values)

    monkeypatch.setattr(executions, "renew", noted)
    monkeypatch.setattr(
        holding.Holding, "_renewed", property(lambda _: time.monotonic() - 15, lambda *_: None), raising=False
    )

    def slow(_stop: threading.Event) -> ConversationReply:
        assert renewed.wait(20)
        return said("Done.")

    assert run(session, ScriptedModel(slow)) == "idle"


def test_s6_an_interrupted_run_keeps_what_was_said_ends_the_turn_and_gives_the_session_back(session: Session) -> None:
    admit(session, "i1")
    admit(session, "i2", delivery="queue")
    call = Broken(lambda: executions.interrupt(session=session))
    assert run(session, ScriptedModel(call)) == "interrupted"
    assert transcript(session)[1:] == [
        ("assistant", "interrupted", "Half an answer"),
        ("result", "error_interrupted", "Interrupted."),
    ]
    assert not Message.objects.get(session=session, type="assistant").is_speech
    assert is_free(session)
    waiting = Input.objects.pending().get()
    assert (waiting.uid, waiting.resume) == ("i2", False)


def test_control_without_looks_an_interrupted_run_goes_on_to_its_end(session: Session, monkeypatch: Patch) -> None:
    monkeypatch.setattr(holding.Holding, "_look", lambda self: None)
    admit(session, "i1")
    call = Broken(lambda: executions.interrupt(session=session), patience=SOME_LOOKS)
    assert run(session, ScriptedModel(call)) == "idle"
    assert transcript(session)[1:] == [("assistant", "", "A whole answer."), ("result", "success", "")]
