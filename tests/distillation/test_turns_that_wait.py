"""What a pass takes up and what it leaves: requests, marks, the age of what waits, stored answers (D15 to D26)."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

import pytest
from django.utils import timezone
from django_q.models import OrmQ
from pytest_django import Settings

from agentmemory.models import Message
from agentmemory.services import removals
from distillation import tasks
from distillation.models import Cursor
from distillation.services import coordinator, distilling, holders, operations, passes, seats
from sessions_exec import faults
from tests.distillation.conftest import Tell, cursor_of
from tests.support.model_server import ModelServer

pytestmark = pytest.mark.django_db
WHO = {"operator": "olga", "reason": "because"}
LONG_AGO = timezone.now() - timedelta(days=3)


def ended_at(uid: str, at: datetime) -> datetime:
    """Let a message have come at this moment."""
    Message.objects.filter(uid=uid).update(created_at=at)
    return at


def test_d22_a_session_that_was_taken_up_gets_a_task_for_what_comes_next(server: ModelServer, tell: Tell) -> None:
    session = tell("One fact here.")
    assert coordinator.tick().cursors == 1
    distilling.run_pass(cursor_id=cursor_of(session).pk)
    tell("Another fact there.")
    assert coordinator.tick().cursors == 1


def test_d22_a_request_during_the_last_pass_asks_for_nothing_that_comes_later(server: ModelServer, tell: Tell) -> None:
    """A turn that ends an hour later waits for its tick: it would be a paid call of its own."""
    session = tell("One fact here.")
    faults.install(lambda point: coordinator.request(session=session) if point == "call.after" else None)
    try:
        distilling.run_pass(cursor_id=cursor_of(session).pk)
    finally:
        faults.install(None)
    tell("Another fact there.")
    assert coordinator.dispatch_requested().cursors == 0


def test_d22_a_turn_that_ends_during_a_call_waits_for_its_tick(server: ModelServer, tell: Tell) -> None:
    session = tell("One fact here.")

    def go_on(point: str) -> None:
        if point == "call.after" and len(server.requests) == 1:
            tell("Another fact there.")

    faults.install(go_on)
    try:
        distilling.run_cursor(cursor_id=cursor_of(session).pk)
    finally:
        faults.install(None)
    assert (len(server.requests), cursor_of(session).lag) == (1, 2)


def test_d26_what_waits_is_as_old_as_its_oldest_turn(server: ModelServer, tell: Tell, settings: Settings) -> None:
    settings.AGENTMEMORY_MESSAGES_PER_PASS = 1
    session = tell("One fact here.")
    Cursor.objects.update(due_since=LONG_AGO)
    tell("Another fact there.")
    tell("A third fact.")
    assert cursor_of(session).due_since == LONG_AGO

    second = ended_at("r4", LONG_AGO + timedelta(days=1))
    third = ended_at("r6", LONG_AGO + timedelta(days=2))
    distilling.run_pass(cursor_id=cursor_of(session).pk)
    # The first window ends before the second turn's words: the end of the first is behind it.
    assert cursor_of(session).due_since == second
    distilling.run_pass(cursor_id=cursor_of(session).pk)
    assert cursor_of(session).due_since == third
    distilling.run_pass(cursor_id=cursor_of(session).pk)
    assert cursor_of(session).due_since is None


def test_d26_what_is_distilled_again_waits_since_its_turn_ended(server: ModelServer, tell: Tell) -> None:
    session = tell("One fact here.")
    cursor = cursor_of(session)
    distilling.run_pass(cursor_id=cursor.pk)
    ended = ended_at("r2", LONG_AGO)
    operations.distil_again(cursor_id=cursor.pk, seq=1, **WHO)
    assert cursor_of(session).due_since == ended


def test_d24_moving_a_cursor_and_taking_its_lease_raise_the_fence(server: ModelServer, tell: Tell) -> None:
    session = tell("One fact here.", "Another fact there.")
    cursor = cursor_of(session)
    operations.skip_to(cursor_id=cursor.pk, seq=2, **WHO)
    assert cursor_of(session).epoch == cursor.epoch + 1
    operations.release_lease(cursor_id=cursor.pk, **WHO)
    assert cursor_of(session).epoch == cursor.epoch + 2


def test_d15_a_stop_keeps_an_answer_that_has_just_been_stored(server: ModelServer, tell: Tell) -> None:
    """The thread that stops does not know yet what the one that waited for the answer has done."""
    session = tell("One fact here.")
    begun = passes.begin(cursor_id=cursor_of(session).pk, worker="w")
    assert isinstance(begun, passes.Begun)
    stale = passes.Begun(**{**vars(begun), "row": type(begun.row).objects.get(pk=begun.row.pk)})
    with seats.taken():
        passes.store_answer(begun, distilling._extract(begun))
    passes.give_back(stale, reason="its worker was asked to stop")
    begun.row.refresh_from_db()
    assert begun.row.outcome == "running"
    assert distilling.run_pass(cursor_id=begun.cursor.pk).state == "applied"
    assert len(server.requests) == 1


def test_a3_no_pass_is_begun_that_could_not_end_in_time(server: ModelServer, tell: Tell, settings: Settings) -> None:
    session = tell("One fact here.")
    left = settings.AGENTMEMORY_CALL_TIMEOUT + distilling.MARGIN
    late = distilling.run_cursor(cursor_id=cursor_of(session).pk, deadline=time.monotonic() + left - 1)
    assert (late.state, server.requests) == (distilling.OUT_OF_TIME, [])
    assert cursor_of(session).attempts == 0
    in_time = distilling.run_cursor(cursor_id=cursor_of(session).pk, deadline=time.monotonic() + left + 60)
    assert in_time.state == "applied"


@pytest.mark.django_db(transaction=True)
def test_a3_a_task_without_time_leaves_the_rest_to_its_successor(
    server: ModelServer, tell: Tell, settings: Settings
) -> None:
    session = tell("One fact here.")
    settings.AGENTMEMORY_TASK_TIMEOUT = 1
    tasks.distil_agent(session.agent_id)
    assert (server.requests, OrmQ.objects.count()) == ([], 1)
    settings.AGENTMEMORY_TASK_TIMEOUT = 600
    tasks.distil_agent(session.agent_id)
    assert (len(server.requests), OrmQ.objects.count()) == (1, 1)


def test_d22_a_request_does_not_wait_for_a_task_that_may_be_lost(tell: Tell) -> None:
    session = tell("One fact here.")
    assert coordinator.tick().cursors == 1
    OrmQ.objects.all().delete()
    coordinator.request(session=session)
    assert coordinator.dispatch_requested().cursors == 1


def test_d22_a_window_that_is_just_full_is_asked_for_at_once(tell: Tell, settings: Settings) -> None:
    settings.AGENTMEMORY_MESSAGES_PER_PASS = 2
    session = tell("One fact here.")
    assert cursor_of(session).requested_at is None
    tell("Another fact there.")
    assert cursor_of(session).requested_at is not None


def test_d22_a_process_that_died_before_it_had_chosen_its_window_is_a_suspect_too(tell: Tell) -> None:
    """Its second attempt was counted, and nothing else: its lease is left to run out (D20)."""
    cursor = cursor_of(tell("One fact here."))
    for _ in range(2):
        Cursor.objects.filter(pk=cursor.pk).update(expires_at=None)
        with pytest.raises(Dead):
            begin_and_die(cursor)
    holders.died("w", 7, coordinator.TASK, "")
    assert coordinator.dispatch_requested().cursors == 0


class Dead(BaseException):
    """The end of a process."""


def begin_and_die(cursor: Cursor) -> None:
    def die(point: str) -> None:
        if point == "lease.after":
            raise Dead

    faults.install(die)
    try:
        passes.begin(cursor_id=cursor.pk, worker=holders.of("w", 7))
    finally:
        faults.install(None)


def test_d22_an_answer_whose_writing_kills_its_worker_is_taken_up_so_often_and_no_more(
    server: ModelServer, tell: Tell
) -> None:
    """As often as a window may fail; then the attempt counts against its messages."""
    cursor = cursor_of(tell("One fact here."))
    begun = passes.begin(cursor_id=cursor.pk, worker="w")
    assert isinstance(begun, passes.Begun)
    with seats.taken():
        passes.store_answer(begun, distilling._extract(begun))
    answered = []
    for _ in range(3):
        Cursor.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
        begun = passes.begin(cursor_id=cursor.pk, worker="w")
        assert isinstance(begun, passes.Begun)
        answered.append(begun.answered)
    assert answered == [True, True, False]
    assert cursor_of(cursor.session).window_failures == 1


def test_d23_a_pass_whose_only_message_was_taken_back_has_found_nothing(server: ModelServer, tell: Tell) -> None:
    """It did not fail: there is nothing left to be read there, so the position goes on."""
    session = tell("One fact here.")

    def take_back(point: str) -> None:
        if point == "call.after":
            removals.retract(session=session, uids=["u1"])

    faults.install(take_back)
    try:
        assert distilling.run_pass(cursor_id=cursor_of(session).pk).state == "empty"
    finally:
        faults.install(None)
    assert (cursor_of(session).position, cursor_of(session).failures) == (2, 0)
