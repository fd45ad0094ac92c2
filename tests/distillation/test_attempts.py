"""When a session is taken up next, in words beside its state (D22, D26)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from django_q.models import OrmQ, Schedule
from pytest_django import Settings

from agentmemory.models import Agent
from config import regular
from distillation.models import Cursor
from distillation.services import attempts, coordinator, states
from distillation.services.attempts import Look
from sessions_exec import queue
from sessions_exec.services import heartbeats, ticks
from tests.distillation.conftest import Tell, cursor_of

pytestmark = pytest.mark.django_db


def said(cursor: Cursor, look: Look | None = None, **values: Any) -> str:
    """What is said of a session with these values."""
    now = timezone.now()
    Cursor.objects.filter(pk=cursor.pk).update(**values)
    found = Cursor.objects.select_related("agent", "space").get(pk=cursor.pk)
    at = look or Look(working=True, at=now + timedelta(minutes=13, seconds=10))
    return attempts.words(found, states.describe(found, now, private=True), look=at, now=now)


def test_d22_what_is_due_says_when_the_coordinator_looks(tell: Tell) -> None:
    cursor = cursor_of(tell("A fact."))
    assert said(cursor) == "looked at within 13 minutes"
    assert said(cursor, Look(working=True, at=timezone.now())) == "looked at within a minute"
    assert said(cursor, Look(working=True)) == "looked at when the coordinator does"
    assert said(cursor, Look(working=False)) == "looked at when a worker runs"
    assert said(cursor, waits_for="blocked: today's budget is spent") == "looked at within 13 minutes"


def test_d22_what_is_asked_for_says_so_until_a_worker_has_it(tell: Tell) -> None:
    session = tell("A fact.")
    cursor = cursor_of(session)
    coordinator.request(session=session)
    assert said(cursor) == "asked for: taken up within seconds"
    assert said(cursor, Look(working=False)) == "asked for: taken up when a worker runs"
    assert coordinator.dispatch_requested().cursors == OrmQ.objects.count() == 1
    assert said(cursor) == "a task was made for it: taken up when a worker is free"


def test_what_is_at_rest_or_has_its_time_or_may_not_work_says_nothing(tell: Tell, agent: Agent) -> None:
    cursor = cursor_of(tell("A fact."))
    later, before = timezone.now() + timedelta(hours=1), timezone.now() - timedelta(hours=1)
    assert said(cursor, next_attempt_at=later) == ""
    assert said(cursor, next_attempt_at=None, expires_at=later, acquired_at=timezone.now(), requested_at=before) == ""
    asked = said(cursor, requested_at=timezone.now(), acquired_at=before)
    assert asked == "asked for again: taken up when the pass that runs has ended"
    Agent.objects.filter(pk=agent.pk).update(status=Agent.Status.PAUSED)
    assert said(cursor, expires_at=None) == ""
    Agent.objects.filter(pk=agent.pk).update(status=Agent.Status.ACTIVE)
    assert said(cursor, position=2, watermark=2) == ""


def test_the_next_look_is_the_schedules_and_of_a_short_cadence_the_tickers(settings: Settings) -> None:
    assert attempts.look() == Look(working=False, at=None)
    heartbeats.beat(worker="this", host="h", pid=1, processes=1)
    queue.ensure_schedules(regular.schedules())
    assert attempts.look() == Look(working=True, at=Schedule.objects.get(name="coordinator").next_run)

    settings.AGENTMEMORY_CADENCE = 5.0
    queue.ensure_schedules(regular.schedules())
    ticks.note("coordinator", "0 sessions")
    at = attempts.look().at
    assert at is not None
    assert timedelta(0) < at - timezone.now() <= timedelta(seconds=5)
