"""The bridge for clients that only speak stdio, as a program that the official client starts."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from agentmemory.models import Agent, Memory
from agentmemory.services import tokens
from tests.factories import AgentFactory
from tests.support import serving

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.e2e]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def address() -> Iterator[str]:
    with serving.tools() as address:
        yield address


@pytest.fixture
def token(address: str) -> str:
    agent: Agent = AgentFactory.create(handle="ada", space__slug="acme")
    return tokens.issue(space=agent.space, agent=agent).plain


@pytest.fixture
def surroundings(tmp_path: Path) -> dict[str, str]:
    """What the program starts with: a database that nobody could reach."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("AGENTMEMORY_", "SECRET_KEY"))},
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "AGENTMEMORY_ENV_FILE": "none",
        "AGENTMEMORY_DATA_DIR": str(tmp_path),
        "DATABASE_URL": "postgres://nobody@127.0.0.1:1/nothing",
        # Nobody is there either: the token is for the server alone.
        **dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"), "http://127.0.0.1:1"),
        **dict.fromkeys(("NO_PROXY", "no_proxy"), ""),
    }


def use(surroundings: dict[str, str], what: Callable[[Client], Awaitable[Any]], *, mode: Any = "auto") -> Any:
    program = StdioServerParameters(
        command=sys.executable, args=["manage.py", "mcp_stdio"], env=surroundings, cwd=str(ROOT)
    )

    async def run() -> Any:
        async with Client(stdio_client(program), mode=mode) as client:
            return await what(client)

    return asyncio.run(run())


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_that_speaks_stdio_uses_the_tools_of_a_server(
    address: str, token: str, surroundings: dict[str, str], mode: str
) -> None:
    async def write_and_search(client: Client) -> Any:
        tools = await client.list_tools()
        await client.call_tool("memory_write", {"key": "port-ü", "content": "We listen on 8080.\nAlways."})
        return tools, await client.call_tool("memory_search", {"query": "which port"})

    there = {**surroundings, "AGENTMEMORY_URL": address.removesuffix("/mcp"), "AGENTMEMORY_TOKEN": token}
    tools, found = use(there, write_and_search, mode=mode)
    assert len(tools.tools) == 5
    assert [item["key"] for item in found.structured_content["items"]] == ["port-ü"]
    assert Memory.objects.get().owner is not None


def speak(surroundings: dict[str, str], *arguments: str, lines: list[Any]) -> tuple[list[dict[str, Any]], str]:
    """What the program answers to these lines, once it has heard them all; and what it says beside."""
    done = subprocess.run(
        [sys.executable, "manage.py", "mcp_stdio", *arguments],
        cwd=ROOT,
        env=surroundings,
        input="".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


PING = {"jsonrpc": "2.0", "id": "p", "method": "ping"}
HELLO = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


def test_nothing_but_protocol_is_on_its_output_whatever_comes_in(
    address: str, token: str, surroundings: dict[str, str]
) -> None:
    lines = ["no json", "[]", '{"a": 1}', HELLO, {"jsonrpc": "2.0", "method": "notifications/initialized"}, PING]
    answers, _ = speak({**surroundings, "DEBUG": "true"}, "--url", address, "--token", token, lines=lines)
    assert all(answer["jsonrpc"] == "2.0" for answer in answers)
    assert [answer["error"]["code"] for answer in answers if answer.get("id") is None] == [-32700] * 3
    assert {answer["id"] for answer in answers if "result" in answer} == {0, "p"}


def test_a_server_that_is_not_there_is_an_error_of_the_call_and_nothing_is_left_behind(
    surroundings: dict[str, str], tmp_path: Path
) -> None:
    answers, beside = speak(surroundings, "--url", "http://127.0.0.1:1", "--token", "t", lines=[PING])
    assert [answer["id"] for answer in answers] == ["p"]
    assert "http://127.0.0.1:1/mcp does not answer" in answers[0]["error"]["message"]
    assert "bridge.unanswered" in beside
    assert list(tmp_path.iterdir()) == []


def test_t3_a_bad_token_is_told_in_words(address: str, surroundings: dict[str, str]) -> None:
    bad = "amt_aaaaaaaa_" + "x" * 43
    answers, beside = speak(surroundings, "--url", address, "--token", bad, lines=[HELLO])
    assert "does not take the token" in answers[0]["error"]["message"]
    assert bad not in beside


def test_without_a_token_it_says_what_to_do(surroundings: dict[str, str]) -> None:
    answers, beside = speak(surroundings, lines=[])
    assert answers == []
    assert "AGENTMEMORY_TOKEN" in beside
