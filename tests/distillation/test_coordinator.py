"""The coordinator finds what is due from state, at a cost that goes by what is due (D22)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django_q.models import OrmQ

from agentmemory.models import Agent, Session
from distillation.models import Cursor
from distillation.services import coordinator, distilling
from sessions_exec import faults
from tests.distillation.conftest import Tell, cursor_of
from tests.factories import AgentFactory
from tests.support.model_server import ModelServer

pytestmark = pytest.mark.django_db


def fill(agent: Agent, count: int) -> None:
    """So many sessions whose every turn has been distilled."""
    names = range(count)
    sessions = Session.objects.bulk_create(
        Session(space=agent.space, agent=agent, name=f"f{name}", last_seq=2, terminal_seq=2) for name in names
    )
    Cursor.objects.bulk_create(
        Cursor(session=session, space=agent.space, agent=agent, position=2, watermark=2) for session in sessions
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE distillation_cursor")


def fall_due(count: int) -> None:
    chosen = Cursor.objects.order_by("pk").values("pk")[:count]
    Cursor.objects.filter(pk__in=chosen).update(position=0, enqueued_at=None, due_since=timezone.now())


def tick() -> tuple[coordinator.Dispatched, int]:
    """What a tick found, and how many queries it made."""
    with CaptureQueriesContext(connection) as queries:
        found = coordinator.tick()
    return found, len(queries)


def test_d22_a_tick_makes_as_many_queries_for_a_hundred_sessions_as_for_one(agent: Agent) -> None:
    fill(agent, 2_000)
    fall_due(1)
    one, queries_for_one = tick()
    fall_due(100)
    many, queries_for_many = tick()
    assert (one.cursors, many.cursors) == (1, 100)
    assert queries_for_many == queries_for_one <= 8


def test_d22_what_is_due_is_found_by_an_index_of_what_is_due(agent: Agent) -> None:
    """Not by reading what is not: the planner knows how few cursors are behind."""
    fill(agent, 2_000)
    fall_due(10)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE distillation_cursor")
    plan = Cursor.objects.due(timezone.now()).order_by("due_since", "pk").explain()
    assert "cursor_lagging" in plan
    assert "Seq Scan on distillation_cursor" not in plan


def test_d22_one_task_for_each_agent_and_none_twice(agent: Agent, tell: Tell) -> None:
    other = AgentFactory.create(space=agent.space, handle="grace")
    for name in ("s1", "s2"):
        tell("One fact here.", name=name)
        tell("One fact here.", name=name, agent=other)
    found = coordinator.tick()
    assert (found.cursors, found.agents, OrmQ.objects.count()) == (4, 2, 2)
    assert coordinator.tick().cursors == 0
    assert OrmQ.objects.count() == 2


def test_d22_a_task_that_was_lost_is_made_again_at_the_next_tick(tell: Tell) -> None:
    tell("One fact here.")
    assert coordinator.tick().cursors == 1
    OrmQ.objects.all().delete()
    Cursor.objects.update(enqueued_at=F("enqueued_at") - timedelta(minutes=29, seconds=30))
    assert coordinator.tick().cursors == 1


def not_due(**values: Any) -> bool:
    Cursor.objects.update(**values)
    return coordinator.tick().cursors == 0


def test_d22_what_waits_for_something_is_not_due(tell: Tell, agent: Agent) -> None:
    tell("One fact here.")
    soon = timezone.now() + timedelta(minutes=1)
    assert not_due(next_attempt_at=soon)
    assert not_due(next_attempt_at=None, expires_at=soon)
    Cursor.objects.update(expires_at=None)
    Agent.objects.filter(pk=agent.pk).update(status=Agent.Status.PAUSED)
    assert coordinator.tick().cursors == 0
    Agent.objects.filter(pk=agent.pk).update(status=Agent.Status.ACTIVE)
    assert coordinator.tick().cursors == 1


def test_d22_a_request_that_comes_during_a_pass_outlives_it(server: ModelServer, tell: Tell) -> None:
    session = tell("One fact here.")

    def ask(point: str) -> None:
        if point == "call.after" and len(server.requests) == 1:
            tell("Another fact there.")
            coordinator.request(session=session)

    faults.install(ask)
    try:
        distilling.run_pass(cursor_id=cursor_of(session).pk)
    finally:
        faults.install(None)
    assert cursor_of(session).requested_at is not None
    assert coordinator.dispatch_requested().cursors == 1
    distilling.run_pass(cursor_id=cursor_of(session).pk)
    assert (cursor_of(session).requested_at, cursor_of(session).lag) == (None, 0)


def test_d22_a_request_with_nothing_new_is_done_with_at_the_next_look(server: ModelServer, tell: Tell) -> None:
    session = tell("One fact here.")
    distilling.run_pass(cursor_id=cursor_of(session).pk)
    coordinator.request(session=session)
    distilling.run_pass(cursor_id=cursor_of(session).pk)
    assert cursor_of(session).requested_at is None
