"""A process that is known to be dead holds nothing up, and what was asked for is not forgotten with it (D14, D22)."""

from __future__ import annotations

import os
import uuid
from datetime import timedelta

import pytest
from django.utils import timezone
from django_q.models import OrmQ
from pytest_django import Settings

from agentmemory.models import Agent, Memory
from distillation.models import Cursor, DistillationPass
from distillation.services import coordinator, distilling, holders, passes, seats, states
from sessions_exec.errors import LeaseLost
from tests.distillation.conftest import Tell, cursor_of
from tests.support import model_server
from tests.support.model_server import ModelServer

pytestmark = pytest.mark.django_db

WORKER = "host:1:abc"


def begun_by(pid: int, cursor: Cursor) -> passes.Begun:
    begun = passes.begin(cursor_id=cursor.pk, worker=holders.of(WORKER, pid))
    assert isinstance(begun, passes.Begun)
    return begun


def die(pid: int, *, agent: Agent | None = None) -> None:
    holders.died(WORKER, pid, coordinator.TASK, str(agent.pk) if agent else "")


def time_goes_by() -> None:
    Cursor.objects.update(expires_at=timezone.now() - timedelta(seconds=1))


def test_d22_a_request_stays_until_the_last_of_its_windows_is_read(
    server: ModelServer, tell: Tell, settings: Settings
) -> None:
    """A worker that died between two windows of one request left the rest until the next tick."""
    settings.AGENTMEMORY_MESSAGES_PER_PASS = 1
    session = tell("One fact here.", "Another fact there.", "A third fact.")
    coordinator.request(session=session)
    cursor = cursor_of(session)
    assert distilling.run_pass(cursor_id=cursor.pk).again
    begun_by(7, cursor)

    time_goes_by()
    assert coordinator.dispatch_requested().cursors == 1
    assert coordinator.dispatch_requested().cursors == 0

    distilling.run_cursor(cursor_id=cursor.pk)
    assert (cursor_of(session).lag, cursor_of(session).requested_at) == (0, None)


def test_d21_a_request_is_over_with_the_limit_of_its_run(server: ModelServer, tell: Tell, settings: Settings) -> None:
    settings.AGENTMEMORY_MESSAGES_PER_PASS = settings.AGENTMEMORY_PASSES_PER_RUN = 1
    session = tell("One fact here.", "Another fact there.")
    coordinator.request(session=session)
    distilling.run_cursor(cursor_id=cursor_of(session).pk)
    assert cursor_of(session).lag > 0
    assert coordinator.dispatch_requested().cursors == 0


def test_d7_what_failed_when_it_was_asked_for_is_taken_up_when_its_backoff_is_over(
    server: ModelServer, tell: Tell
) -> None:
    server.script(model_server.status(500))
    session = tell("One fact here.")
    coordinator.request(session=session)
    distilling.run_pass(cursor_id=cursor_of(session).pk)
    assert coordinator.dispatch_requested().cursors == 0
    Cursor.objects.update(next_attempt_at=timezone.now())
    assert coordinator.dispatch_requested().cursors == 1


def test_d14_what_a_dead_process_held_is_free_at_once_and_its_epoch_writes_nothing(
    server: ModelServer, tell: Tell, agent: Agent
) -> None:
    begun = begun_by(7, cursor_of(tell("One fact here.")))
    other = begun_by(8, cursor_of(tell("Another fact there.", name="s2")))

    die(7, agent=agent)

    with pytest.raises(LeaseLost):
        _answered(begun)
    assert coordinator.dispatch_requested().cursors == 1
    assert distilling.run_pass(cursor_id=begun.cursor.pk).state == "applied"
    other.cursor.refresh_from_db()
    assert other.cursor.holder == holders.of(WORKER, 8)
    assert passes.apply(_answered(other)).outcome == "applied"


def _answered(begun: passes.Begun) -> passes.Begun:
    with seats.taken():
        passes.store_answer(begun, distilling._extract(begun))
    return begun


def test_d15_an_answer_that_a_dead_process_had_stored_is_not_paid_for_again(server: ModelServer, tell: Tell) -> None:
    begun = _answered(begun_by(7, cursor_of(tell("One fact here."))))
    die(7)
    assert distilling.run_pass(cursor_id=begun.cursor.pk).state == "applied"
    assert (len(server.requests), Memory.objects.count(), DistillationPass.objects.count()) == (1, 1, 1)


def test_d20_a_session_whose_second_worker_dies_waits_its_lease_out(tell: Tell, server: ModelServer) -> None:
    """It may be what kills them: it must not kill one each second."""
    session = tell("One fact here.")
    begun_by(7, cursor_of(session))
    die(7)
    begun_by(8, cursor_of(session))
    die(8)
    cursor = cursor_of(session)
    assert cursor.expires_at is not None
    assert cursor.expires_at > timezone.now()
    assert coordinator.dispatch_requested().cursors == 0
    state = states.describe(cursor, private=True)
    assert (state.name, state.line) == ("running", "its process died; taken over in 4\xa0minutes")

    time_goes_by()
    assert coordinator.dispatch_requested().cursors == 1


def test_d22_what_waited_for_a_task_that_died_gets_another_one(tell: Tell, agent: Agent) -> None:
    """The mark says that a task will come; it would stand until the next tick but one."""
    for name in ("s1", "s2"):
        tell("One fact here.", name=name)
    assert coordinator.tick().cursors == 2
    OrmQ.objects.all().delete()
    die(7, agent=agent)
    assert coordinator.dispatch_requested().cursors == 2


def test_a_process_takes_leases_under_its_workers_name_and_its_own(settings: Settings) -> None:
    settings.AGENTMEMORY_WORKER_NAME = WORKER
    assert holders.own() == f"{WORKER}/{os.getpid()}"
    settings.AGENTMEMORY_WORKER_NAME = uuid.uuid4().hex * 7
    assert len(holders.own()) <= 200
