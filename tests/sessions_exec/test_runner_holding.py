"""What a run does beside its work: it renews, hears of an interruption, and stops when the session is its no longer."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from django.db import connection

from agentmemory.models import Message, Session
from sessions_exec.errors import LeaseLost
from sessions_exec.llm.messages import CallStopped, ConversationReply
from sessions_exec.models import Execution, Input
from sessions_exec.runner import holding, runs
from sessions_exec.services import executions
from tests.factories import SessionFactory
from tests.support.running import admit, expire, is_free, row, transcript
from tests.support.scripted import ScriptedModel, said

pytestmark = pytest.mark.django_db(transaction=True)


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


def test_s3_whose_lease_is_taken_in_the_midst_of_a_call_writes_nothing(session: Session) -> None:
    admit(session, "i1")

    def robbed(stop: threading.Event) -> ConversationReply:
        expire(session)
        executions.acquire(session=session, holder="another", seconds=30)
        assert stop.wait(20)
        raise CallStopped(text="Half an answer")

    assert run(session, ScriptedModel(robbed)) == "lost"
    assert row(session).holder == "another"
    assert "Half an answer" not in str(transcript(session))
    assert not Message.objects.filter(session=session, type="assistant").exists()


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

    def interrupted(stop: threading.Event) -> ConversationReply:
        executions.interrupt(session=session)
        assert stop.wait(20)
        raise CallStopped(text="Half an answer")

    assert run(session, ScriptedModel(interrupted)) == "interrupted"
    assert transcript(session)[1:] == [
        ("assistant", "interrupted", "Half an answer"),
        ("result", "error_interrupted", "Interrupted."),
    ]
    assert not Message.objects.get(session=session, type="assistant").is_speech
    assert is_free(session)
    waiting = Input.objects.pending().get()
    assert (waiting.uid, waiting.resume) == ("i2", False)
