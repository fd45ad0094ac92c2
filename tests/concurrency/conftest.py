"""One agent with a finished turn, and a model server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_django import Settings

from agentmemory.models import Agent
from distillation.models import Cursor
from tests.factories import AgentFactory
from tests.faults import books
from tests.support.model_server import ModelServer


@pytest.fixture
def server(settings: Settings) -> Iterator[ModelServer]:
    with ModelServer() as running:
        settings.ANTHROPIC_BASE_URL = running.address
        settings.AGENTMEMORY_PROVIDER_KEYS = {"ANTHROPIC_API_KEY": "sk-of-tests"}
        yield running


@pytest.fixture
def agent(transactional_db: None) -> Agent:
    return AgentFactory.create(handle="ada", space__slug="acme")


@pytest.fixture
def cursor(agent: Agent) -> Cursor:
    return Cursor.objects.get(session=books.tell(agent, "s1", turns=1))
