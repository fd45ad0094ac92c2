"""Two passes of one agent at once, in two sessions: what both found is remembered once (D9)."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from agentmemory.models import Memory, MemorySource
from distillation.services import distilling, writing
from tests.distillation.conftest import Tell, cursor_of
from tests.support import model_server, races
from tests.support.model_server import ModelServer

pytestmark = pytest.mark.django_db(transaction=True)


def run_two(server: ModelServer, tell: Tell, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Both passes look for what says the same before either writes, if they can."""
    sessions = [tell("We listen on port 8080.", name=name) for name in ("s1", "s2")]
    for key in ("port", "listening"):
        server.script(model_server.memories([{"key": key, "content": "The service listens on 8080.", "sources": [1]}]))
    meeting, look = threading.Barrier(2), writing._repeated

    def look_and_wait(*given: object) -> Memory | None:
        found = look(*given)  # type: ignore[arg-type]
        with suppress(threading.BrokenBarrierError):
            meeting.wait(timeout=2)
        return found

    monkeypatch.setattr(writing, "_repeated", look_and_wait)
    cursors = [cursor_of(session).pk for session in sessions]
    return races.together(*[lambda pk=pk: distilling.run_cursor(cursor_id=pk).state for pk in cursors])


def test_d9_what_two_sessions_say_at_once_is_remembered_once(
    server: ModelServer, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_two(server, tell, monkeypatch) == ["applied", "applied"]
    memory = Memory.objects.get()
    assert set(MemorySource.objects.filter(memory=memory).values_list("session_name", flat=True)) == {"s1", "s2"}


def test_d9_without_taking_turns_it_is_remembered_twice(
    server: ModelServer, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_one_at_a_time", lambda agent_id: None)
    run_two(server, tell, monkeypatch)
    assert Memory.objects.count() == 2
