"""Each guard of an execution holds its race, and the same race is lost where the guard is taken out (S1 to S8).

Real threads, real connections. A control takes one guard out and nothing else; it must show the damage.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import Max
from django.db.models.functions import Now

from agentmemory.models import Message, Session
from agentmemory.services import transcripts
from sessions_exec import faults, rules, signals
from sessions_exec.errors import LeaseHeld, LeaseLost
from sessions_exec.leases import LeaseQuerySet
from sessions_exec.models import Execution, Input, Recovery, SessionEvent
from sessions_exec.querysets import ExecutionQuerySet
from sessions_exec.services import events, executions, inbox, recovery
from tests.factories import SessionFactory
from tests.support.races import Actor, Paused, at_once, elapsed, errors, outcome, results
from tests.support.running import acquire, expire, log, row, say

pytestmark = pytest.mark.django_db(transaction=True)

Patch = pytest.MonkeyPatch


@pytest.fixture
def session() -> Session:
    return SessionFactory.create()


def note(session: Session, text: str) -> None:
    """A guarded write that takes no other lock than the fence's and the counter's."""
    events.append(session=session, entries=[(SessionEvent.Type.MESSAGE_CHANGED, {"note": text})])


def order(session: Session) -> list[str]:
    """The log, with the notes by their text."""
    log(session)
    rows = SessionEvent.objects.filter(session=session).order_by("seq")
    return [event.data.get("note", event.type) for event in rows]


# --- the lock ---


def test_s3_renewals_pass_a_fence(session: Session) -> None:
    held = acquire(session)
    writer = Paused(lambda: held(session))
    with elapsed() as seconds:
        executions.renew(session=session, held=held)
        assert seconds() < 2
    writer.go_on()
    assert writer.error is None


def take_over_beside_a_guarded_write(session: Session) -> tuple[bool, list[str]]:
    """Whether the take-over waited, and in which order the two came."""
    held = acquire(session)
    writer = Paused(lambda: held(session), lambda: note(session, "guarded write"))
    expire(session)
    taker = Actor(lambda: acquire(session, "next"))
    waited = taker.waits()
    writer.go_on()
    taker.join()
    assert writer.error is None
    assert taker.error is None
    return waited, order(session)


def test_s3_a_move_waits_for_the_session_before_it_takes_the_execution(session: Session) -> None:
    """In another order a move and an append of one holder would wait for each other; a plain renewal waits for none."""
    held = acquire(session, seconds=600)
    appending = Paused(lambda: transcripts.lock(session.pk), lambda: say(session, "a1", type="assistant", guard=held))
    moving = Actor(lambda: executions.renew(session=session, held=held, phase="unknown"))
    assert moving.waits()
    executions.renew(session=session, held=held)
    outcome(appending.go_on())
    outcome(moving)
    assert (row(session).phase, row(session).assistant_uid) == ("unknown", "a1")


def test_s3_a_take_over_waits_for_a_guarded_write(session: Session) -> None:
    waited, found = take_over_beside_a_guarded_write(session)
    assert waited
    assert found.index("guarded write") < found.index("execution.recovered")


def test_control_without_the_lock_a_stale_write_comes_after_the_take_over(session: Session, monkeypatch: Patch) -> None:
    monkeypatch.setattr(LeaseQuerySet, "fence", LeaseQuerySet.fence_now)
    waited, found = take_over_beside_a_guarded_write(session)
    assert not waited
    assert found.index("guarded write") > found.index("execution.recovered")


def test_s3_a_fence_that_waited_for_a_take_over_is_refused(session: Session) -> None:
    held = acquire(session)
    expire(session)
    taker = Paused(lambda: acquire(session, "next"))
    stale = Actor(lambda: guarded(session, held))
    assert stale.waits()
    taker.go_on()
    assert isinstance(stale.join().error, LeaseLost)


@transaction.atomic
def guarded(session: Session, held: executions.Held) -> None:
    held(session)
    note(session, "stale")


def test_s7_a_scan_does_not_wait_for_a_guarded_write_and_recovers_later(session: Session) -> None:
    held = acquire(session)
    writer = Paused(lambda: held(session), lambda: note(session, "guarded write"))
    expire(session)
    with elapsed() as seconds:
        assert recovery.scan().settled == 0
        assert seconds() < 2
    writer.go_on()
    assert recovery.scan().settled == 1


# --- the expiry ---


def write_after_the_time_is_over(session: Session) -> list[str]:
    """Whose messages stand after a holder was away, and somebody else took the word."""
    held = acquire(session)
    expire(session)
    say(session, "somebody else")
    with contextlib.suppress(LeaseLost):
        say(session, "stale holder", guard=held)
    return list(Message.objects.filter(session=session).order_by("seq").values_list("uid", flat=True))


def test_s3_an_expired_holder_writes_nothing(session: Session) -> None:
    assert write_after_the_time_is_over(session) == ["somebody else"]


def test_control_without_the_expiry_two_write_at_a_time(session: Session, monkeypatch: Patch) -> None:
    monkeypatch.setattr(ExecutionQuerySet, "fence", _fence_by_epoch_alone)
    assert write_after_the_time_is_over(session) == ["somebody else", "stale holder"]


def _fence_by_epoch_alone(self: Any, pk: Any, *, epoch: int) -> None:
    if not self.filter(pk=pk, epoch=epoch).exists():
        raise LeaseLost


def renewal_that_waits_past_the_expiry(session: Session, *, changed: bool) -> Actor:
    """A renewal behind a lock, which is let go only after the lease is over. `changed`: the row was written, too."""
    held = acquire(session, seconds=1.5)

    def keep() -> None:
        list(Execution.objects.filter(pk=session.pk).select_for_update())

    def let_go() -> None:
        if changed:
            Execution.objects.filter(pk=session.pk).update(assistant_uid="x")

    keeper = Paused(keep, let_go)
    late = Actor(lambda: executions.renew(session=session, held=held))
    assert late.waits()
    time.sleep(1.7)
    keeper.go_on()
    return late.join()


@pytest.mark.parametrize("changed", [False, True])
def test_s3_a_renewal_that_waited_past_the_expiry_revives_nothing(session: Session, changed: bool) -> None:
    assert isinstance(renewal_that_waits_past_the_expiry(session, changed=changed).error, LeaseLost)
    assert not Execution.objects.live().exists()


def test_control_without_waiting_for_the_row_first_a_late_renewal_is_told_that_it_holds(
    session: Session, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(LeaseQuerySet, "_wait_for_row", lambda self, pk: None)
    assert renewal_that_waits_past_the_expiry(session, changed=False).error is None


def test_control_with_a_clock_that_stands_still_a_late_renewal_takes_the_lease_for_live(
    session: Session, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(LeaseQuerySet, "_wait_for_row", lambda self, pk: None)
    monkeypatch.setattr(LeaseQuerySet, "live", lambda self: self.filter(expires_at__gt=Now()))
    assert renewal_that_waits_past_the_expiry(session, changed=True).error is None


# --- the epoch ---


def write_after_a_take_over(session: Session) -> list[str]:
    held = acquire(session)
    expire(session)
    successor = acquire(session, "next")
    for uid, guard in (("successor", successor), ("stale holder", held)):
        with contextlib.suppress(LeaseLost):
            say(session, uid, guard=guard)
    return list(Message.objects.filter(session=session, type="user").order_by("seq").values_list("uid", flat=True))


def test_s3_a_holder_that_was_replaced_writes_nothing(session: Session) -> None:
    assert write_after_a_take_over(session) == ["successor"]


def test_control_without_the_epoch_both_write(session: Session, monkeypatch: Patch) -> None:
    def hold_any(self: Any, pk: Any, **_: Any) -> None:
        self.fence(pk, epoch=row(session).epoch)

    monkeypatch.setattr(ExecutionQuerySet, "hold", hold_any)
    assert write_after_a_take_over(session) == ["successor", "stale holder"]


# --- exactly this row ---


def close_what_was_looked_at_before_a_take_over(session: Session) -> None:
    acquire(session)
    expire(session)
    seen = row(session)
    acquire(session, "next")
    with contextlib.suppress(LeaseLost):
        recovery._close(seen)


def test_s7_a_recovery_never_closes_a_successor(session: Session) -> None:
    close_what_was_looked_at_before_a_take_over(session)
    assert row(session).holder == "next"


def test_control_without_the_exact_row_a_live_successor_is_closed(session: Session, monkeypatch: Patch) -> None:
    def close(execution: Execution) -> None:
        Execution.objects.filter(pk=execution.pk).update(holder="", expires_at=None)

    monkeypatch.setattr(recovery, "_close", close)
    close_what_was_looked_at_before_a_take_over(session)
    assert row(session).holder == ""


def test_s1_of_many_that_acquire_at_once_one_gets_it(session: Session) -> None:
    actors = at_once([lambda n=n: acquire(session, f"runner {n}") for n in range(8)])  # type: ignore[misc]
    assert len(results(actors)) == 1
    assert errors(actors) == [LeaseHeld] * 7
    assert row(session).epoch == 1


def test_s7_many_scans_and_acquisitions_at_once_give_one_recovery_and_one_holder(session: Session) -> None:
    acquire(session, "dead")
    expire(session)
    scans = [recovery.scan for _ in range(4)]
    takers = [lambda n=n: acquire(session, f"runner {n}") for n in range(4)]
    actors = at_once([*scans, *takers])

    assert set(errors(actors)) <= {LeaseHeld}
    assert len([actor for actor in actors[4:] if actor.error is None]) == 1
    assert Recovery.objects.count() == 1
    assert Input.objects.filter(kind="continuation").count() == 1
    assert Message.objects.filter(session=session).count() == 1
    assert log(session).count("execution.recovered") == 1
    assert row(session).epoch == 2


def test_control_an_expired_lease_that_is_simply_acquired_leaves_no_trace_of_what_was_uncertain(
    session: Session, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(ExecutionQuerySet, "free", LeaseQuerySet.free)
    monkeypatch.setattr(executions, "_recover_or_refuse", lambda session: None)
    executions.renew(session=session, held=acquire(session, "dead"), phase="unknown")
    expire(session)
    acquire(session, "next")
    assert not Recovery.objects.exists()
    assert row(session).phase == "ready"


# --- the phase before a dispatch ---


class Runner:
    """Does one thing outside of the database, under its execution."""

    def __init__(self, session: Session, done: list[int], *, moves_first: bool) -> None:
        self.session, self.done, self.moves_first = session, done, moves_first
        self.held = acquire(session)
        executions.renew(session=session, held=self.held, phase="safe")

    def dispatch(self) -> None:
        if self.moves_first:
            executions.renew(session=self.session, held=self.held, phase="unknown")
        self.done.append(self.held.epoch)


def dispatch_and_die(session: Session, *, moves_first: bool) -> list[str]:
    Runner(session, [], moves_first=moves_first).dispatch()
    expire(session)
    recovery.scan()
    return list(Recovery.objects.values_list("phase", flat=True))


def test_s8_what_was_dispatched_and_not_recorded_is_told(session: Session) -> None:
    assert dispatch_and_die(session, moves_first=True) == ["unknown"]


def test_control_without_the_move_before_a_dispatch_it_is_lost_silently(session: Session) -> None:
    assert dispatch_and_die(session, moves_first=False) == []


def dispatch_by_two(session: Session, *, moves_first: bool) -> list[int]:
    """The epochs under which something was done, when a runner wakes up after its time."""
    done: list[int] = []
    asleep = Runner(session, done, moves_first=moves_first)
    expire(session)
    Runner(session, done, moves_first=moves_first).dispatch()
    with contextlib.suppress(LeaseLost):
        asleep.dispatch()
    return done


def test_s6_a_dispatch_follows_only_an_answered_move(session: Session) -> None:
    assert dispatch_by_two(session, moves_first=True) == [2]


def test_control_without_the_answered_move_two_epochs_dispatch(session: Session) -> None:
    assert dispatch_by_two(session, moves_first=False) == [2, 1]


# --- the release looks again ---


@pytest.fixture
def wakes() -> Iterator[list[int]]:
    heard: list[int] = []

    def hear(sender: object, *, session_id: int, **_: Any) -> None:
        heard.append(session_id)

    signals.session_wanted.connect(hear)
    yield heard
    signals.session_wanted.disconnect(hear)


def admit_while_it_is_released(session: Session) -> tuple[int, str]:
    """What the release counted, and the state of an input that was admitted before the release was committed."""
    held = acquire(session)
    releasing = Paused(lambda: counted.append(executions.release(session=session, held=held).pending))
    admitting = Actor(lambda: inbox.admit(session=session, uid="i1", prompt="Now."))
    admitting.waits()
    releasing.go_on()
    admitting.join()
    assert admitting.error is None
    return counted[0], Input.objects.get().state


counted: list[int] = []


@pytest.fixture(autouse=True)
def nothing_counted() -> None:
    counted.clear()


def test_s6_an_input_admitted_during_a_release_is_not_stranded(session: Session, wakes: list[int]) -> None:
    assert admit_while_it_is_released(session) == (0, "pending")
    assert wakes == [session.pk]


def test_control_without_the_lock_between_release_and_admission_nobody_is_woken_and_the_sweep_finds_it(
    session: Session, wakes: list[int], monkeypatch: Patch
) -> None:
    monkeypatch.setattr(transcripts, "lock", lambda pk: Session.objects.select_related("agent").get(pk=pk))
    monkeypatch.setattr(events, "append", lambda **_: None)
    assert admit_while_it_is_released(session) == (0, "pending")
    assert wakes == []
    assert inbox.sweep() == 1
    assert wakes == [session.pk]


def test_control_without_the_look_at_the_release_nobody_is_woken(
    session: Session, wakes: list[int], monkeypatch: Patch
) -> None:
    held = acquire(session)
    inbox.admit(session=session, uid="i1", prompt="Now.")
    monkeypatch.setattr(inbox, "wake", lambda session: None)
    executions.release(session=session, held=held)
    assert wakes == []


# --- the newest assistant message ---


def overtaken(session: Session) -> bool:
    """Whether an answer that the conversation has gone past was taken up again."""
    held = acquire(session)
    say(session, "a1", type="assistant", guard=held)
    executions.renew(session=session, held=held, phase="unknown")
    expire(session)
    say(session, "a2", type="assistant")
    recovery.scan()
    return Message.objects.get(uid="a1").is_error


def test_s8_an_answer_that_was_overtaken_is_left_alone(session: Session) -> None:
    assert not overtaken(session)


def test_control_without_the_look_at_the_newest_answer_an_older_one_is_taken_up(
    session: Session, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(rules, "needs_nothing", lambda *, phase, own, newest: phase == "safe")
    assert overtaken(session)


# --- the inbox ---


def test_s4_two_that_admit_one_id_at_once_get_one_admission(session: Session) -> None:
    actors = at_once([lambda: inbox.admit(session=session, uid="i1", prompt="Once.") for _ in range(6)])
    assert sorted(created for _, created in results(actors)) == [False] * 5 + [True]
    assert Input.objects.count() == 1
    assert log(session) == ["input.admitted"]


def test_s5_inputs_are_promoted_once_while_others_admit_flip_and_cancel(session: Session) -> None:
    held = acquire(session, seconds=60)
    for n in range(6):
        inbox.admit(session=session, uid=f"i{n}", prompt=f"Prompt {n}.")

    def promote() -> list[str]:
        return [r.uid for r in inbox.promote(session=session, guard=held, boundary="step")]

    actors = at_once(
        [
            promote,
            promote,
            lambda: inbox.cancel(session=session, uid="i0"),
            lambda: inbox.flip(session=session, uid="i1", delivery="queue"),
            lambda: inbox.admit(session=session, uid="i6", prompt="Prompt 6."),
            promote,
        ]
    )
    promote()
    said = list(Message.objects.filter(session=session).values_list("uid", flat=True))
    told = [uid for actor in actors if isinstance(actor.result, list) for uid in actor.result]
    assert len(said) == len(set(said))
    assert set(told) <= set(said)
    for found in Input.objects.all():
        assert (found.state == "promoted") == (found.uid in said)
        assert found.state in {"promoted", "pending", "cancelled"}
    assert log(session).count("input.promoted") == len(said)


def test_s5_promoted_inputs_of_an_execution_that_dies_before_the_commit_are_still_pending(session: Session) -> None:
    held = acquire(session)
    inbox.admit(session=session, uid="i1", prompt="Once.")

    def die(point: str) -> None:
        if point == "promote.before_commit":
            raise ConnectionError

    faults.install(die)
    try:
        with pytest.raises(ConnectionError):
            inbox.promote(session=session, guard=held, boundary="step")
    finally:
        faults.install(None)
    assert Input.objects.get().state == "pending"
    assert not Message.objects.exists()


def test_s7_a_scanner_that_dies_before_the_commit_has_done_nothing(session: Session) -> None:
    acquire(session, "dead")
    expire(session)

    def die(point: str) -> None:
        raise ConnectionError

    faults.install(die)
    try:
        assert recovery.scan().settled == 0
    finally:
        faults.install(None)
    assert not Recovery.objects.exists()
    assert recovery.scan().settled == 1


# --- the log ---


def write_by_many(session: Session) -> list[Actor]:
    def write() -> None:
        for n in range(10):
            note(session, f"note {n}")

    return at_once([write] * 8)


def test_s10_many_writers_leave_no_gap_and_a_reader_that_follows_misses_nothing(session: Session) -> None:
    seen: list[int] = []

    def follow() -> None:
        while len(seen) < 80:
            after = seen[-1] if seen else 0
            seen.extend(event.seq for event in events.page(session=session, after=after, limit=7))
            connection.close()

    reader = Actor(follow)
    assert errors(write_by_many(session)) == []
    reader.join()
    assert seen == list(range(1, 81))
    assert len(log(session)) == 80


def test_s10_an_event_that_is_not_committed_holds_back_those_after_it(session: Session) -> None:
    first = Paused(lambda: note(session, "first"))
    second = Actor(lambda: note(session, "second"))
    assert second.waits()
    assert events.page(session=session, after=0, limit=10) == []
    first.go_on()
    second.join()
    assert order(session) == ["first", "second"]


def test_control_without_the_counters_lock_events_get_lost(session: Session, monkeypatch: Patch) -> None:
    def append(*, session: Session, entries: Any) -> None:
        rows = SessionEvent.objects.filter(session=session)
        last = rows.aggregate(last=Max("seq"))["last"] or 0
        time.sleep(0.005)
        for seq, (kind, data) in enumerate(entries, start=last + 1):
            SessionEvent.objects.create(space_id=session.space_id, session=session, seq=seq, type=kind, data=data)

    monkeypatch.setattr(events, "append", append)
    assert IntegrityError in errors(write_by_many(session))


def test_the_clock_of_expiry_runs_within_a_statement() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT now(), pg_sleep(0.1), clock_timestamp()")
        begun, _, later = cursor.fetchone()
    assert later - begun > timedelta(seconds=0.09)
