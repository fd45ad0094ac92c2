"""Executions: acquired, renewed, interrupted, released (S1 to S3, S6)."""

from __future__ import annotations

import uuid

import pytest
from django.test import override_settings
from django.utils import timezone

from agentmemory.errors import Invalid
from agentmemory.models import Message, Session
from agentmemory.services import removals, sessions
from distillation.services import coordinator
from sessions_exec.errors import LeaseHeld, LeaseLost
from sessions_exec.services import executions, inbox, recovery
from tests.factories import SessionFactory
from tests.support.running import acquire, expire, log, row, say

pytestmark = pytest.mark.django_db


@pytest.fixture
def session() -> Session:
    return SessionFactory.create()


@pytest.mark.parametrize("phase", ["ready", "safe", "unknown"])
def test_s1_a_live_execution_is_not_replaced_by_anyone_in_any_phase(session: Session, phase: str) -> None:
    held = acquire(session, "one")
    executions.renew(session=session, held=held, phase=phase)

    for owner in ("one", "two"):
        with pytest.raises(LeaseHeld) as refused:
            acquire(session, owner)
        assert refused.value.holder == "one"
        assert refused.value.expires_at == row(session).expires_at


def test_s1_nobody_else_appends_rewinds_or_deletes_while_a_live_execution_stands(session: Session) -> None:
    say(session, "a")
    held = acquire(session)

    with pytest.raises(LeaseHeld):
        say(session, "b")
    with pytest.raises(LeaseHeld):
        removals.rewind(session=session, after_uid="a")
    with pytest.raises(LeaseHeld):
        sessions.delete(session=session)
    say(session, "b", guard=held)

    assert list(Message.objects.filter(session=session).values_list("uid", flat=True)) == ["a", "b"]
    executions.release(session=session, held=held)
    say(session, "c")
    removals.rewind(session=session, after_uid="a")
    sessions.delete(session=session)


def test_s2_every_acquisition_has_a_new_epoch_and_a_new_id(session: Session) -> None:
    first = acquire(session)
    executions.release(session=session, held=first)
    second = acquire(session)
    expire(session)
    recovery.recover(session_id=session.pk)
    third = acquire(session)
    expire(session)
    fourth = acquire(session)

    assert [first.epoch, second.epoch, third.epoch, fourth.epoch] == [1, 2, 3, 4]
    assert len({held.execution_id for held in (first, second, third, fourth)}) == 4


def _moves(session: Session, held: executions.Held) -> list[object]:
    """Everything that relies on an execution."""
    return [
        lambda: executions.renew(session=session, held=held),
        lambda: executions.renew(session=session, held=held, phase="unknown"),
        lambda: executions.renew(session=session, held=held, assistant_uid="x"),
        lambda: inbox.promote(session=session, guard=held, boundary="step"),
        lambda: say(session, "stale", guard=held),
        lambda: removals.rewind(session=session, after_uid="a", guard=held),
        lambda: executions.release(session=session, held=held),
    ]


@pytest.mark.parametrize("end", ["expired", "recovered", "taken over", "released", "released and taken again"])
def test_s3_nothing_is_done_under_an_execution_that_is_over(session: Session, end: str) -> None:
    say(session, "a")
    inbox.admit(session=session, uid="waiting", prompt="Later.", delivery="queue")
    held = acquire(session)
    if end.startswith("released"):
        executions.release(session=session, held=held)
    else:
        expire(session)
    if end == "recovered":
        recovery.recover(session_id=session.pk)
    if end in ("taken over", "released and taken again"):
        acquire(session)
    before = (log(session), row(session).__dict__ | {"_state": None}, Message.objects.count())

    for move in _moves(session, held):
        with pytest.raises(LeaseLost):
            move()  # type: ignore[operator]

    assert (log(session), row(session).__dict__ | {"_state": None}, Message.objects.count()) == before


def test_s3_the_epoch_does_not_do_without_the_id(session: Session) -> None:
    held = acquire(session)
    other = executions.Held(execution_id=uuid.uuid4(), epoch=held.epoch)
    older = executions.Held(execution_id=held.execution_id, epoch=held.epoch - 1)

    for wrong in (other, older):
        for move in _moves(session, wrong):
            with pytest.raises(LeaseLost):
                move()  # type: ignore[operator]
    with pytest.raises(LeaseLost):
        executions.guard(execution_id="no such thing", epoch=1)


def test_a_renewal_holds_for_the_term_that_was_asked_for(session: Session) -> None:
    held = acquire(session, seconds=100.0)
    before = row(session).expires_at
    assert before is not None
    executions.renew(session=session, held=held)
    after = row(session).expires_at

    assert after is not None
    assert after > before
    assert (after - before).total_seconds() < 10
    assert log(session) == ["execution.acquired"]


def test_phases_are_told_when_they_change(session: Session) -> None:
    held = acquire(session)
    executions.renew(session=session, held=held, phase="unknown", assistant_uid="a1")
    executions.renew(session=session, held=held, phase="unknown", assistant_uid="a1")
    executions.renew(session=session, held=held, phase="safe")

    assert log(session) == ["execution.acquired", "execution.phase", "execution.phase"]
    assert (row(session).phase, row(session).assistant_uid) == ("safe", "a1")
    with pytest.raises(Invalid):
        executions.renew(session=session, held=held, phase="asleep")


def test_an_answer_that_is_appended_is_the_newest_of_its_execution(session: Session) -> None:
    held = acquire(session)
    say(session, "a1", type="assistant", guard=held)
    assert row(session).assistant_uid == "a1"
    say(session, "u2", guard=held)
    assert row(session).assistant_uid == "a1"


def test_s6_an_interrupt_is_heard_at_the_next_renewal_and_releases_nothing_by_itself(session: Session) -> None:
    held = acquire(session)
    assert executions.interrupt(session=session)
    assert executions.interrupt(session=session)

    renewed = executions.renew(session=session, held=held)
    assert renewed.interrupted_at is not None
    with pytest.raises(LeaseHeld):
        acquire(session, "two")
    executions.release(session=session, held=held)
    assert not executions.interrupt(session=session)
    assert executions.renew(session=session, held=acquire(session)).interrupted_at is None
    assert log(session) == [
        "execution.acquired",
        "execution.interrupted",
        "execution.released",
        "execution.acquired",
    ]


def test_live_executions_are_found_by_their_sessions(session: Session) -> None:
    other = SessionFactory.create()
    assert executions.live([session, other]) == {}
    acquire(session)
    acquire(other)
    expire(other)
    assert list(executions.live([session, other])) == [session.pk]


@override_settings(AGENTMEMORY_IDLE_AFTER=0.0)
def test_r6_the_turn_of_a_session_that_somebody_runs_is_not_ended_for_being_quiet(session: Session) -> None:
    say(session, "u1")
    held = acquire(session)
    assert coordinator.finish_quiet_sessions(now=timezone.now()) == 0
    executions.release(session=session, held=held)
    acquire(session)
    expire(session)
    # What it left is looked at by its recovery first.
    assert coordinator.finish_quiet_sessions(now=timezone.now()) == 0
    recovery.end_turn(session=session)
    assert coordinator.finish_quiet_sessions(now=timezone.now()) == 0
    say(session, "u2")
    assert coordinator.finish_quiet_sessions(now=timezone.now()) == 1
