"""What follows an expired execution (S7 to S9)."""

from __future__ import annotations

from typing import Any

import pytest

from agentmemory.models import Message, Session
from sessions_exec.errors import LeaseLost
from sessions_exec.models import Input, Recovery
from sessions_exec.services import executions, inbox, recovery
from tests.factories import SessionFactory
from tests.support.running import acquire, expire, log, row, say

pytestmark = pytest.mark.django_db


@pytest.fixture
def session() -> Session:
    return SessionFactory.create()


def die(session: Session, phase: str | None = None, **given: Any) -> executions.Held:
    """Begin to run a session, and be heard of no more."""
    held = acquire(session, "dead", **given)
    if phase:
        executions.renew(session=session, held=held, phase=phase)
    expire(session)
    return held


def call(name: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": "shell", "input": {}}


def result(name: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": name, "content": "done"}


def promoted(session: Session, boundary: str) -> list[str]:
    return [r.uid for r in inbox.promote(session=session, guard=acquire(session), boundary=boundary)]


def test_s7_a_live_execution_is_never_recovered(session: Session) -> None:
    held = acquire(session, seconds=60)
    executions.renew(session=session, held=held, phase="unknown")
    assert recovery.scan().settled == 0
    assert not recovery.recover(session_id=session.pk)
    assert row(session).holder == "runner"


def test_s7_one_that_ended_at_a_boundary_is_closed_silently(session: Session) -> None:
    say(session, "u1")
    die(session, "safe")
    assert recovery.scan().settled == 1
    assert recovery.scan().settled == 0

    assert not Recovery.objects.exists()
    assert not Input.objects.exists()
    assert Message.objects.count() == 1
    assert (row(session).holder, row(session).expires_at) == ("", None)
    assert log(session)[-1] == "execution.released"


@pytest.mark.parametrize("how", ["scan", "acquire"])
@pytest.mark.parametrize("phase", ["ready", "unknown"])
def test_s7_an_answer_cut_short_is_completed_as_an_error_and_the_rest_is_asked_for(
    session: Session, phase: str, how: str
) -> None:
    held = acquire(session, "dead")
    content = [{"type": "text", "text": "Working."}, call("t1"), call("t2"), call("t3")]
    say(session, "a0", type="assistant", content=[call("t0")], guard=held)
    say(session, "a1", type="assistant", content=content, guard=held)
    say(session, "u1", content=[result("t2")], guard=held)
    executions.renew(session=session, held=held, phase=phase)
    expire(session)

    if how == "scan":
        assert recovery.scan().settled == 1
    else:
        acquire(session, "next")
    found = Recovery.objects.get()
    answer, older = Message.objects.get(uid="a1"), Message.objects.get(uid="a0")
    waiting = Input.objects.get()

    assert answer.is_error
    assert answer.content == content
    assert list(answer.tool_outcomes) == ["t1", "t3"]
    assert all(outcome.startswith("outcome unknown") for outcome in answer.tool_outcomes.values())
    assert not older.is_error
    assert older.tool_outcomes == {}
    assert (found.phase, found.epoch, found.message_uid, found.synthetic) == (phase, 1, "a1", False)
    assert found.tool_calls == ["t1", "t3"]
    assert (found.continuation, waiting.delivery, waiting.kind) == (waiting, "queue", "continuation")
    assert log(session).count("execution.recovered") == 1
    assert Message.objects.count() == 3


@pytest.mark.parametrize("phase", ["ready", "unknown"])
def test_s7_without_an_answer_one_message_says_what_is_uncertain(session: Session, phase: str) -> None:
    say(session, "u1")
    say(session, "a0", type="assistant", content=[call("t0")])
    held = acquire(session, "dead")
    executions.renew(session=session, held=held, phase=phase, assistant_uid="a1")
    expire(session)
    recovery.scan()
    recovery.scan()

    made = Message.objects.get(session=session, seq=3)
    assert (made.type, made.is_error, made.is_speech) == ("system", True, False)
    assert ("Its outcome is unknown" in made.text) == (phase == "unknown")
    assert Message.objects.count() == 3
    assert not Message.objects.get(uid="a0").is_error
    assert Recovery.objects.get().synthetic


def test_s7_one_that_a_newer_answer_has_overtaken_is_closed_silently(session: Session) -> None:
    held = acquire(session, "dead")
    say(session, "a1", type="assistant", content=[call("t1")], guard=held)
    executions.renew(session=session, held=held, phase="unknown")
    expire(session)
    say(session, "a2", type="assistant", content="Somebody else went on.")

    assert recovery.scan().settled == 1
    assert not Recovery.objects.exists()
    assert not Message.objects.filter(is_error=True).exists()


def test_s8_an_older_answer_is_never_taken_up_again(session: Session) -> None:
    held = acquire(session, "dead")
    say(session, "a1", type="assistant", content=[call("t1")], guard=held)
    say(session, "a2", type="assistant", content=[call("t2")], guard=held)
    executions.renew(session=session, held=held, phase="unknown")
    expire(session)
    recovery.scan()
    assert list(Message.objects.filter(is_error=True).values_list("uid", flat=True)) == ["a2"]


def test_s7_the_continuation_comes_before_inputs_that_were_admitted_earlier(session: Session) -> None:
    inbox.admit(session=session, uid="q1", prompt="Earlier.", delivery="queue")
    inbox.admit(session=session, uid="s1", prompt="Earlier, steering.")
    die(session)
    recovery.scan()
    continuation = Input.objects.get(kind="continuation").uid

    assert promoted(session, "step") == [continuation, "s1"]
    assert Message.objects.get(uid=continuation).is_speech is False


def test_s7_the_continuation_comes_first_when_the_session_would_go_idle(session: Session) -> None:
    inbox.admit(session=session, uid="q1", prompt="Earlier.", delivery="queue")
    die(session)
    held = acquire(session)
    continuation = Input.objects.get(kind="continuation").uid
    for expected in ([continuation], ["q1"], []):
        assert [r.uid for r in inbox.promote(session=session, guard=held, boundary="idle")] == expected


def test_s7_a_later_recovery_takes_the_place_of_a_continuation_that_nobody_promoted(session: Session) -> None:
    die(session)
    die(session)
    recovery.scan()
    assert list(Input.objects.order_by("pk").values_list("state", flat=True)) == ["cancelled", "pending"]
    assert Recovery.objects.count() == 2


@pytest.mark.parametrize("interrupted", [False, True])
def test_s6_what_a_user_interrupted_is_recovered_and_not_taken_up_by_itself(
    session: Session, interrupted: bool
) -> None:
    held = acquire(session, "dead")
    if interrupted:
        executions.interrupt(session=session)
    say(session, "a1", type="assistant", guard=held)
    expire(session)
    scanned = recovery.scan()
    assert Input.objects.get().resume is not interrupted
    assert (scanned.settled, scanned.stranded) == (1, 0 if interrupted else 1)


def test_s9_ten_recoveries_of_one_turn_end_it_as_failed(session: Session) -> None:
    say(session, "u1")
    for _ in range(9):
        die(session)
        recovery.scan()
    assert session_terminal(session) == 0
    die(session)
    recovery.scan()

    assert list(Recovery.objects.order_by("pk").values_list("outcome", flat=True)) == ["continued"] * 9 + ["failed"]
    assert not Input.objects.filter(state="pending").exists()
    last = Message.objects.order_by("-seq")[0]
    assert (last.type, last.is_error, last.seq) == ("result", True, session_terminal(session))
    assert log(session).count("turn.ended") == 1
    # The next turn counts for itself.
    die(session)
    recovery.scan()
    assert Recovery.objects.order_by("-pk")[0].outcome == "continued"


def session_terminal(session: Session) -> int:
    return Session.objects.get(pk=session.pk).terminal_seq


def test_one_session_that_cannot_be_recovered_does_not_hold_up_the_others(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = SessionFactory.create()
    die(session)
    die(other)
    real = recovery._recover

    def fail_once(found: Session, execution: Any) -> None:
        if found.pk == session.pk:
            raise RuntimeError("broken")
        real(found, execution)

    monkeypatch.setattr(recovery, "_recover", fail_once)
    assert recovery.scan().settled == 1
    assert row(other).holder == ""
    assert row(session).holder == "dead"


def test_an_operator_ends_a_turn_whoever_runs_it(session: Session) -> None:
    held = acquire(session)
    say(session, "a1", type="assistant", content=[call("t1")], guard=held)
    executions.renew(session=session, held=held, phase="unknown")

    assert recovery.end_turn(session=session)
    assert not recovery.end_turn(session=session)
    with pytest.raises(LeaseLost):
        say(session, "a2", type="assistant", guard=held)
    answer, ended = Message.objects.filter(session=session).order_by("seq")
    assert answer.is_error
    assert list(answer.tool_outcomes) == ["t1"]
    assert (ended.type, ended.is_error) == ("result", True)
    assert session_terminal(session) == 2
    assert log(session)[-2:] == ["message.appended", "turn.ended"]
    assert acquire(session).epoch == 2
