"""T2, M4: whoever has no business with a memory gets nothing of it through any tool there is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.isolation.strangers import CANARY, FOREIGN, KEY, NOT_VALID, make_victim, state
from tests.support import serving
from tests.support.clients import Api

pytestmark = pytest.mark.django_db(transaction=True)

CALLS: dict[str, dict[str, Any]] = {
    "memory_write": {"key": KEY, "content": "x", "scope": "space"},
    "memory_search": {"query": f"fox {CANARY}"},
    "memory_read": {"key": KEY},
    "memory_delete": {"key": KEY},
    "memory_context": {"query": f"fox {CANARY}"},
}
"""Each tool, with arguments that name what is not its caller's."""


@pytest.fixture
def victim(transactional_db: None) -> Api:
    return make_victim()


@pytest.fixture
def address() -> Iterator[str]:
    with serving.tools() as address:
        yield address


def answers(address: str, api: Api) -> dict[str, str]:
    """What each tool says to this caller, without the names that the call itself brought along."""

    async def run() -> dict[str, str]:
        headers = {"Authorization": f"Bearer {api.token}"}
        async with (
            httpx2.AsyncClient(headers=headers, trust_env=False) as http,
            Client(streamable_http_client(address, http_client=http)) as client,
        ):
            assert {tool.name for tool in (await client.list_tools()).tools} == set(CALLS)
            # Looking comes first: what a caller wrote itself is its own.
            order = sorted(CALLS, key=lambda name: (name == "memory_delete", name == "memory_write"))
            return {name: str(await client.call_tool(name, CALLS[name])).replace(KEY, "") for name in order}

    return asyncio.run(run())


@pytest.mark.parametrize("stranger", FOREIGN)
def test_m4_a_foreign_token_learns_and_changes_nothing_through_a_tool(
    victim: Api, stranger: Callable[[Api], Api], address: str
) -> None:
    before = state(victim)
    for name, said in answers(address, stranger(victim)).items():
        assert CANARY not in said, name
        assert "fox" not in said, name
    assert state(victim) == before


def test_the_victim_itself_finds_it_through_the_tools(victim: Api, address: str) -> None:
    """Without this, arguments that are wrong would find nothing for anybody."""
    said = answers(address, victim)
    assert all("fox" in said[name] for name in ("memory_search", "memory_read", "memory_context"))
    assert "True" in said["memory_delete"]


@pytest.mark.parametrize("stranger", NOT_VALID)
def test_t3_a_token_that_is_not_valid_gets_401_from_the_tools(
    victim: Api, stranger: Callable[[Api], Api], address: str
) -> None:
    token = stranger(victim).token
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "memory_read"}}
    answer = httpx2.post(address, json=body, headers=headers, trust_env=False)
    assert answer.status_code == 401
    assert CANARY not in answer.text
