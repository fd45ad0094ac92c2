"""A model server, an agent, and real processes under orders."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from typing import Any

import pytest
from django.db import connection

from agentmemory.models import Agent
from tests.factories import AgentFactory
from tests.support import faulty_worker
from tests.support.faulty_worker import Orders
from tests.support.model_server import ModelServer

ROUNDS = int(os.environ.get("ROUNDS", "2"))
Begin = Callable[..., BaseProcess]
Distil = Callable[..., BaseProcess]


def values(server: ModelServer) -> dict[str, Any]:
    """Settings of a process under orders: small windows, and no end to its patience with workers that die."""
    return {
        "ANTHROPIC_BASE_URL": server.address,
        "AGENTMEMORY_PROVIDER_KEYS": {"ANTHROPIC_API_KEY": "sk-of-tests"},
        "AGENTMEMORY_MESSAGES_PER_PASS": 4,
        "AGENTMEMORY_QUARANTINE_AFTER": 1000,
    }


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture
def agent(transactional_db: None) -> Agent:
    return AgentFactory.create(handle="ada", space__slug="acme")


@pytest.fixture
def orders() -> Iterator[Orders]:
    given = Orders.new()
    yield given
    shutil.rmtree(given.folder)


@pytest.fixture
def begin(server: ModelServer, orders: Orders) -> Iterator[Begin]:
    """Start a command in a process of its own, under orders; nothing of it is left after the test."""
    begun: list[BaseProcess] = []

    def start(command: Sequence[str], *, environment: dict[str, str] | None = None, **settings: Any) -> BaseProcess:
        database = {name: connection.settings_dict[name] for name in ("HOST", "PORT", "NAME", "USER", "PASSWORD")}
        process = faulty_worker.start(
            command,
            orders=orders,
            settings={**values(server), **settings},
            database=database,
            environment=environment,
        )
        begun.append(process)
        return process

    yield start
    for process in begun:
        process.kill()
        process.join()


@pytest.fixture
def distil(begin: Begin) -> Distil:
    return functools.partial(begin, ["distill"])
