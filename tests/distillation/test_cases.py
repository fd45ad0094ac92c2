"""How software of this kind is known to fail, and what happens here instead."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import Settings

from agentmemory.models import Agent, Memory, Session
from agentmemory.services import sessions
from distillation.models import Cursor, DistillationPass
from distillation.services import coordinator, distilling, passes, reading
from sessions_exec import faults
from tests.distillation.conftest import Tell, cursor_of
from tests.factories import ProviderFactory
from tests.support import model_server
from tests.support.model_server import ModelServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def at_point() -> Any:
    """Do something when the work comes to a point."""

    def install(point: str, act: Any) -> None:
        faults.install(lambda reached: act() if reached == point else None)

    yield install
    faults.install(None)


def run(cursor: Cursor) -> distilling.Result:
    return distilling.run_cursor(cursor_id=cursor.pk)


# --- lost work, stuck queues, leases ---


def test_a_dead_worker_s_name_on_a_row_keeps_nobody_from_it(server: ModelServer, tell: Tell) -> None:
    """Only a live lease counts: after its end anybody takes over, without an operator."""
    cursor = cursor_of(tell("One fact here."))
    Cursor.objects.filter(pk=cursor.pk).update(
        holder="host-that-is-gone:1", epoch=7, attempts=1, expires_at=timezone.now() + timedelta(minutes=4)
    )
    assert coordinator.tick().cursors == 0
    Cursor.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert coordinator.tick().cursors == 1
    assert run(cursor).state == "applied"
    assert cursor_of(cursor.session).epoch == 8


def test_what_waits_for_its_next_attempt_holds_no_worker(server: ModelServer, tell: Tell) -> None:
    """A backoff is a time in a row, not a task that sleeps: nothing is enqueued, and a task that comes ends at once."""
    cursor = cursor_of(tell("One fact here."))
    server.script(model_server.status(503))
    assert run(cursor).state == "failed"
    assert coordinator.tick().cursors == 0
    begun = timezone.now()
    assert run(cursor).state == "backing_off"
    assert timezone.now() - begun < timedelta(seconds=5)
    cursor.refresh_from_db()
    assert (cursor.holder, cursor.attempts) == ("", 0)


def test_an_error_that_nobody_foresaw_is_on_record_and_tried_again(
    server: ModelServer, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursor = cursor_of(tell("One fact here."))

    def broken(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError("nobody foresaw this")

    with monkeypatch.context() as patch:
        patch.setattr(reading, "prompt", broken)
        result = run(cursor)
    assert result.row is not None
    assert (result.state, result.row.failure) == ("failed", "fault")
    cursor.refresh_from_db()
    assert (cursor.failures, cursor.holder, cursor.position) == (1, "", 0)
    assert "nobody foresaw this" in cursor.last_error
    Cursor.objects.update(next_attempt_at=None)
    assert run(cursor).state == "applied"


def test_an_address_that_is_not_allowed_blames_no_window(server: ModelServer, tell: Tell, settings: Settings) -> None:
    cursor = cursor_of(tell("One fact here."))
    settings.AGENTMEMORY_ALLOW_PRIVATE_ADDRESSES = False
    ProviderFactory.create(name="anthropic", address=server.address)
    result = run(cursor)
    assert result.state in {"failed", "blocked"}
    cursor.refresh_from_db()
    assert (cursor.position, cursor.window_failures) == (0, 0)
    assert server.requests == []


def test_a_session_can_be_deleted_while_its_pass_runs(server: ModelServer, tell: Tell, at_point: Any) -> None:
    session = tell("One fact here.")
    at_point("call.after", lambda: sessions.delete(session=session))
    assert run(cursor_of(session)).state == "lost"
    assert not Memory.objects.exists()
    assert not Cursor.objects.exists()
    row = DistillationPass.objects.get()
    assert (row.outcome, row.failure, row.input_tokens) == ("failed", "lease_lost", 100)


def test_r6_the_tail_of_a_session_that_fell_silent_is_distilled(server: ModelServer, tell: Tell) -> None:
    session = tell("One fact here.", end=False)
    assert coordinator.tick().cursors == 0
    Session.objects.update(quiet_since=timezone.now() - timedelta(minutes=31))
    assert coordinator.tick().cursors == 1
    assert run(cursor_of(session)).state == "applied"
    assert (cursor_of(session).position, Memory.objects.count()) == (1, 1)


def test_a_pass_that_was_stopped_with_its_answer_stored_is_not_paid_for_again(
    server: ModelServer, tell: Tell, at_point: Any
) -> None:
    session = tell("One fact here.")

    def stop() -> None:
        raise SystemExit(143)

    at_point("write.after", stop)
    with pytest.raises(SystemExit):
        run(cursor_of(session))
    faults.install(None)
    cursor = cursor_of(session)
    assert (cursor.attempts, cursor.holder, cursor.position, Memory.objects.count()) == (0, "", 0, 0)
    assert run(cursor).state == "applied"
    assert (len(server.requests), DistillationPass.objects.count(), Memory.objects.count()) == (1, 1, 1)


def test_d24_what_ran_before_an_operator_moved_the_cursor_is_closed(server: ModelServer, tell: Tell) -> None:
    """A pass whose worker died leaves no row that runs for ever."""
    session = tell("One fact here.", "Another fact there.")
    run(cursor_of(session))
    tell("A third fact.")
    begun = passes.begin(cursor_id=cursor_of(session).pk, worker="soon dead")
    assert isinstance(begun, passes.Begun)
    Cursor.objects.update(position=0, attempts=0, expires_at=None, holder="")
    assert run(cursor_of(session)).state == "applied"
    begun.row.refresh_from_db()
    assert (begun.row.outcome, begun.row.failure) == ("failed", "lease_lost")
    assert cursor_of(session).window_failures == 0


def test_d16_a_stored_answer_of_an_agent_that_was_archived_since_is_not_applied(
    server: ModelServer, tell: Tell, agent: Agent, at_point: Any
) -> None:
    session = tell("One fact here.")

    def stop() -> None:
        raise SystemExit(143)

    at_point("write.before", stop)
    with pytest.raises(SystemExit):
        run(cursor_of(session))
    faults.install(None)
    Agent.objects.filter(pk=agent.pk).update(status=Agent.Status.PAUSED)
    assert run(cursor_of(session)).state == "blocked"
    assert not Memory.objects.exists()
    Agent.objects.filter(pk=agent.pk).update(status=Agent.Status.ACTIVE)
    assert run(cursor_of(session)).state == "applied"
    assert len(server.requests) == 1


# --- what models answer ---


@pytest.mark.parametrize(
    "answer",
    [
        '{"memories": [{"key": "\\ud83d',
        "I found {two} things, {as} asked.",
        '{"memories": [{"key": "a", "content": "b"',
    ],
)
def test_an_answer_that_cannot_be_read_is_kept_as_it_came_and_paid_for_on_record(
    server: ModelServer, tell: Tell, answer: str
) -> None:
    server.script(model_server.raw_text(answer))
    row = run(cursor_of(tell("One fact here."))).row
    assert row is not None
    row.refresh_from_db()
    assert (row.outcome, row.answer, row.input_tokens, row.output_tokens) == ("failed", answer, 100, 20)


def test_an_answer_that_was_cut_is_paid_for_on_record(server: ModelServer, tell: Tell) -> None:
    server.script(model_server.cut())
    distilling.run_pass(cursor_id=cursor_of(tell("One fact here.", "Another fact there.")).pk)
    row = DistillationPass.objects.get()
    assert (row.failure, row.input_tokens, row.output_tokens) == ("cut", 100, 20)


def test_an_outage_and_nothing_found_are_told_apart(server: ModelServer, tell: Tell) -> None:
    first, second = tell("One fact here.", name="s1"), tell("Nothing here.", name="s2")
    server.script(model_server.status(500), model_server.memories([]))
    assert run(cursor_of(first)).state == "failed"
    assert run(cursor_of(second)).state == "empty"
    assert (cursor_of(first).position, cursor_of(second).position) == (0, 2)


# --- cost ---


def test_d21_a_space_without_tokens_left_is_not_called_for(server: ModelServer, tell: Tell, agent: Agent) -> None:
    """A hard stop, that says why, and goes on when the day or the budget has changed."""
    agent.space.daily_tokens = 1
    agent.space.save()
    session = tell("One fact here.")
    assert run(cursor_of(session)).state == "applied"
    tell("Another fact there.")
    for _ in range(5):
        assert run(cursor_of(session)).state == "blocked"
    assert len(server.requests) == 1
    assert "budget" in cursor_of(session).waits_for
    agent.space.daily_tokens = None
    agent.space.save()
    assert run(cursor_of(session)).state == "applied"
