"""Two coordinators at once (D22), and numbers taken at once (R1), each with its negative control."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone
from django_q.models import OrmQ

from agentmemory.models import Agent, Message, Session
from agentmemory.services import sessions, transcripts
from agentmemory.services.transcripts import NewMessage
from distillation.models import Cursor
from distillation.querysets import CursorQuerySet
from distillation.services import coordinator
from tests.factories import AgentFactory
from tests.faults import books
from tests.support import races

pytestmark = pytest.mark.django_db(transaction=True)

AGENTS = 8


def coordinate_together(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Two ticks of which each has chosen its rows before either marks them, where nothing keeps them apart."""
    for number in range(AGENTS):
        books.tell(AgentFactory.create(handle=f"a{number}", space=agent.space), "s", turns=1)
    both = threading.Barrier(2)
    mark = coordinator._mark

    def meet_and_mark(ids: Any, *, now: Any) -> None:
        chosen = list(ids)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(2)
        mark(chosen, now=now)

    monkeypatch.setattr(coordinator, "_mark", meet_and_mark)
    return races.outcomes(races.at_once([coordinator.tick, coordinator.tick]))


def test_d22_two_coordinators_at_once_make_one_task_for_each_agent(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = coordinate_together(agent, monkeypatch)
    assert sum(each.cursors for each in found) == AGENTS
    assert OrmQ.objects.count() == AGENTS


def test_d22_without_skip_locked_two_coordinators_enqueue_everything_twice(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CursorQuerySet, "select_for_update", lambda self, **_: self)
    found = coordinate_together(agent, monkeypatch)
    assert sum(each.cursors for each in found) == 2 * AGENTS
    assert OrmQ.objects.count() == 2 * AGENTS


def test_d22_a_cursor_that_a_pass_has_taken_meanwhile_is_not_waited_for(agent: Agent) -> None:
    """A tick goes by what is locked: it costs what is due, not what others are doing."""
    session = books.tell(agent, "s1", turns=1)
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            Cursor.objects.select_for_update().get(session=session)
            held.set()
            assert go.wait(races.PATIENCE)

    holder = races.Actor(hold)
    assert held.wait(races.PATIENCE)
    assert coordinator.tick().cursors == 0
    go.set()
    holder.brought()
    assert coordinator.tick().cursors == 1


def test_r6_a_session_that_speaks_while_it_is_found_quiet_keeps_its_turn_open(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, _ = sessions.adopt(agent=agent, name="s1")
    transcripts.append(session=session, messages=[NewMessage(uid="u1", type="user", content="Are you there?")])
    Session.objects.update(quiet_since="2020-01-01T00:00Z")
    found = transcripts.quiet_sessions

    def find_and_hear(*, now: Any) -> list[int]:
        ids = found(now=now)
        transcripts.append(session=session, messages=[NewMessage(uid="u2", type="user", content="Anybody there?")])
        return ids

    monkeypatch.setattr(transcripts, "quiet_sessions", find_and_hear)
    coordinator.finish_quiet_sessions(now=timezone.now())
    assert Session.objects.get().terminal_seq == 0
    assert Cursor.objects.get().watermark == 0


def append_together(session: Session) -> list[Any]:
    def one(number: int) -> Any:
        return lambda: [
            transcripts.append(
                session=session, messages=[NewMessage(uid=f"{number}-{at}", type="user", content=f"{number} {at}")]
            )
            for at in range(6)
        ]

    return races.outcomes(races.at_once([one(number) for number in range(4)]))


def test_r1_numbers_taken_at_once_are_gap_free(agent: Agent) -> None:
    session, _ = sessions.adopt(agent=agent, name="s1")
    assert not [each for each in append_together(session) if isinstance(each, Exception)]
    assert list(Message.objects.order_by("seq").values_list("seq", flat=True)) == list(range(1, 25))


def test_r1_without_the_session_s_lock_two_take_one_number(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    session, _ = sessions.adopt(agent=agent, name="s1")
    monkeypatch.setattr(transcripts, "lock", lambda pk: Session.objects.select_related("agent").get(pk=pk))
    assert any(isinstance(each, IntegrityError) for each in append_together(session))
