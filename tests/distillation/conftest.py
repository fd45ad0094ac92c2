"""A model server behind the built-in provider, and sessions with something in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pytest_django import Settings

from agentmemory.models import Agent, Session
from agentmemory.services import sessions, transcripts
from agentmemory.services.transcripts import NewMessage
from distillation.models import Cursor
from tests.factories import AgentFactory
from tests.support.model_server import ModelServer

Tell = Callable[..., Session]


@pytest.fixture
def server(settings: Settings) -> Iterator[ModelServer]:
    """The built-in provider `anthropic`, reached at a scriptable server."""
    with ModelServer() as running:
        settings.ANTHROPIC_BASE_URL = running.address
        settings.AGENTMEMORY_PROVIDER_KEYS = {"ANTHROPIC_API_KEY": "sk-of-tests"}
        yield running


@pytest.fixture
def agent(db: None) -> Agent:
    return AgentFactory.create(handle="ada", space__slug="acme")


@pytest.fixture
def tell(agent: Agent) -> Tell:
    """Append a finished turn with these user texts (or whole messages) to a session of the agent."""

    def told(*said: str | NewMessage, name: str = "s1", end: bool = True, **values: Any) -> Session:
        session, _ = sessions.adopt(agent=values.pop("agent", agent), name=name)
        start = session.last_seq
        messages = [
            each
            if isinstance(each, NewMessage)
            else NewMessage(uid=f"u{start + at}", type="user", content=each, **values)
            for at, each in enumerate(said, start=1)
        ]
        if end:
            messages.append(NewMessage(uid=f"r{start + len(said) + 1}", type="result", content="done"))
        transcripts.append(session=session, messages=messages)
        session.refresh_from_db()
        return session

    return told


def cursor_of(session: Session) -> Cursor:
    return Cursor.objects.get(session=session)
