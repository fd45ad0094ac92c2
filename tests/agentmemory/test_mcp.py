"""The memory tools, used with the official client over HTTP."""

from __future__ import annotations

import asyncio
import itertools
import re
import socket
import tomllib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import psycopg
import pytest
from django.db import InternalError, OperationalError
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver.exceptions import ToolError

from agentmemory import VERSION, mcp
from agentmemory.authorship import Author
from agentmemory.models import Agent, Memory, MemoryEvent
from agentmemory.services import memories, spaces, tokens
from tests.factories import AgentFactory, MemoryFactory
from tests.support import serving

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).resolve().parents[2]

Use = Callable[[Client], Awaitable[Any]]


@pytest.fixture
def address() -> Iterator[str]:
    with serving.tools() as address:
        yield address


@pytest.fixture
def ada() -> Agent:
    return AgentFactory.create(handle="ada", space__slug="acme")


def token_of(agent: Agent) -> str:
    return tokens.issue(space=agent.space, agent=agent).plain


def use(address: str, token: str, what: Use) -> Any:
    async def run() -> Any:
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, trust_env=False) as http,
            Client(streamable_http_client(address, http_client=http)) as client,
        ):
            return await what(client)

    return asyncio.run(run())


def call(address: str, token: str, tool: str, **arguments: Any) -> Any:
    return use(address, token, lambda client: client.call_tool(tool, arguments))


def test_an_agent_writes_finds_reads_and_deletes_its_memories(address: str, ada: Agent) -> None:
    token = token_of(ada)
    written = call(address, token, "memory_write", key="port", content="We listen on 8080.", tags=["net"])
    assert written.structured_content["owner"] == "ada"
    assert written.structured_content["origin"] == "curated"
    found = call(address, token, "memory_search", query="which port")
    assert [item["key"] for item in found.structured_content["items"]] == ["port"]
    read = call(address, token, "memory_read", key="port")
    assert read.structured_content["memory"]["access_count"] == 1
    block = call(address, token, "memory_context", query="port")
    assert "We listen on 8080." in block.structured_content["text"]
    assert call(address, token, "memory_delete", key="port").structured_content == {"deleted": True}
    assert call(address, token, "memory_delete", key="port").structured_content == {"deleted": False}
    absent = call(address, token, "memory_read", key="port")
    assert (absent.is_error, absent.structured_content) == (False, {"found": False, "memory": None})


def test_every_argument_of_a_tool_counts(address: str, ada: Agent) -> None:
    token = token_of(ada)
    MemoryFactory.create_batch(10, owner=ada, pinned=True, content="Core.")
    MemoryFactory.create(owner=ada, key="port-then", content="The port was 80.", origin="distilled")

    async def each(client: Client) -> list[Any]:
        calls: list[tuple[str, dict[str, Any]]] = [
            ("memory_write", {"key": "port", "content": "The port is 8080.", "tags": ["net"]}),
            ("memory_write", {"key": "port", "content": "Every port is ours.", "scope": "space"}),
            ("memory_search", {"query": "port", "origin": "distilled"}),
            ("memory_search", {"query": "port", "scope": "space"}),
            ("memory_search", {"query": "port", "limit": 2}),
            ("memory_read", {"key": "port", "scope": "space"}),
            ("memory_context", {"query": "port"}),
            ("memory_delete", {"key": "port", "scope": "space"}),
        ]
        return [(await client.call_tool(tool, given)).structured_content for tool, given in calls]

    own, shared, distilled, of_space, two, read, context, deleted = use(address, token, each)
    assert (own["tags"], own["scope"], shared["scope"]) == (["net"], "mine", "space")
    assert [item["key"] for item in distilled["items"]] == ["port-then"]
    assert [item["content"] for item in of_space["items"]] == ["Every port is ours."]
    assert len(two["items"]) == 2
    assert read["memory"]["content"] == "Every port is ours."
    assert "port" in {item["key"] for item in context["relevant"]}
    assert deleted == {"deleted": True}
    assert Memory.objects.kept().get(key="port").owner == ada


def test_tools_say_what_they_change(address: str, ada: Agent) -> None:
    tools = use(address, token_of(ada), lambda client: client.list_tools()).tools
    hints = {tool.name: tool.annotations.model_dump(exclude_none=True) for tool in tools}
    reads = {"read_only_hint": True, "open_world_hint": False}
    writes = {"read_only_hint": False, "idempotent_hint": True, "open_world_hint": False}
    assert hints == {
        **dict.fromkeys(("memory_search", "memory_read", "memory_context"), reads),
        "memory_write": {**writes, "destructive_hint": False},
        "memory_delete": {**writes, "destructive_hint": True},
    }


@pytest.mark.parametrize(("hosts", "status"), [(["*"], 200), (["tools.example"], 421)])
def test_the_tools_are_served_under_the_names_that_are_allowed(ada: Agent, hosts: list[str], status: int) -> None:
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    headers = {"Authorization": f"Bearer {token_of(ada)}", "Accept": "application/json, text/event-stream"}
    with serving.serving(mcp.TokenGate(mcp.application(path="/mcp", hosts=hosts))) as address:
        answer = httpx2.post(f"{address}/mcp", json=asked, headers=headers, trust_env=False)
    assert answer.status_code == status


def test_m5_what_a_tool_writes_is_recorded_as_written_by_its_agent(address: str, ada: Agent) -> None:
    call(address, token_of(ada), "memory_write", key="port", content="We listen on 8080.")
    event = MemoryEvent.objects.get()
    assert event.pgh_context is not None
    assert event.pgh_context["author"] == str(Author(kind="agent", name="ada"))


def test_m4_nobody_reaches_anothers_private_memory(address: str, ada: Agent) -> None:
    grace = AgentFactory.create(handle="grace", space=ada.space)
    MemoryFactory.create(owner=ada, key="secret-plan", content="Canary plan.")
    token = token_of(grace)
    assert call(address, token, "memory_read", key="secret-plan").structured_content["found"] is False
    assert call(address, token, "memory_search", query="canary plan").structured_content["items"] == []
    assert call(address, token, "memory_delete", key="secret-plan").structured_content == {"deleted": False}
    assert "Canary" not in call(address, token, "memory_context").structured_content["text"]
    assert Memory.objects.get(owner=ada).deleted_at is None


def test_the_scope_is_mine_or_space_and_mine_is_an_error_for_a_space_token(address: str, ada: Agent) -> None:
    token = tokens.issue(space=ada.space).plain
    shared = call(address, token, "memory_write", key="k", content="Shared.")
    assert shared.structured_content["scope"] == "space"
    assert call(address, token, "memory_read", key="k", scope="mine").is_error
    assert call(address, token_of(ada), "memory_read", key="k", scope="all").is_error
    tools = use(address, token, lambda client: client.list_tools()).tools
    assert {tool.name for tool in tools} == {
        "memory_write",
        "memory_search",
        "memory_read",
        "memory_delete",
        "memory_context",
    }
    assert "'all'" not in str([tool.input_schema for tool in tools])
    assert all(tool.title and tool.description and tool.output_schema for tool in tools)


def test_a_rule_that_is_broken_is_told_in_words(address: str, ada: Agent) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    answer = call(address, token_of(ada), "memory_write", key="k", content=f"It is {secret}.")
    assert answer.is_error
    assert "secret" in answer.content[0].text
    assert secret not in answer.content[0].text


def test_a_database_that_does_not_answer_is_503(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(tokens, "authenticate", fail)
    answer = httpx2.post(address, headers={"Authorization": "Bearer amt_x"}, json={}, trust_env=False)
    assert (answer.status_code, answer.json()["detail"]) == (503, "The database cannot be reached now.")
    assert "refused" not in answer.text


def test_what_the_database_does_not_take_now_is_told_in_words(
    address: str, ada: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: Any) -> None:
        raise InternalError("cannot execute INSERT") from psycopg.errors.ReadOnlySqlTransaction()

    monkeypatch.setattr(memories, "put", fail)
    answer = call(address, token_of(ada), "memory_write", key="k", content="c")
    assert answer.is_error
    assert answer.content[0].text.endswith(": The database takes no writes now.")


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("memory_write", {"content": "c"}, "`key` is needed."),
        ("memory_write", {"key": "", "content": 7}, "`key` must not be empty. `content` must be text."),
        ("memory_write", {"key": "k", "content": "c" * 10_001}, "`content` may have at most 10,000 characters."),
        ("memory_write", {"key": "k", "content": "c", "tags": "a"}, "`tags` must be a list."),
        ("memory_write", {"key": "k", "content": "c", "tags": ["a", 1]}, "`tags[1]` must be text."),
        ("memory_write", {"key": "k", "content": "c", "tags": ["a"] * 51}, "`tags` may have at most 50 items."),
        ("memory_search", {"query": "q", "limit": 0}, "`limit` must be at least 1."),
        ("memory_search", {"query": "q", "limit": 51}, "`limit` may be at most 50."),
        ("memory_search", {"query": "q", "limit": "many"}, "`limit` must be a whole number."),
        ("memory_search", {"query": "q", "scope": "sesame"}, "`scope` must be 'mine' or 'space'."),
    ],
)
def test_arguments_that_cannot_be_are_told_by_name_in_plain_words(
    address: str, ada: Agent, tool: str, arguments: dict[str, Any], told: str
) -> None:
    answer = call(address, token_of(ada), tool, **arguments)
    assert answer.is_error
    assert answer.content[0].text == f"{tool} was not called: {told}"


def test_every_kind_of_fault_that_an_argument_can_have_has_plain_words() -> None:
    wrong: list[Any] = [[], {}, 0, 10**6, 1.5, True, "x" * 100_000, [{}], ["x"] * 1000]
    for tool in asyncio.run(mcp.server.list_tools()):
        for name, value in itertools.product(tool.input_schema["properties"], wrong):
            with pytest.raises(ToolError) as told:
                asyncio.run(mcp.server.call_tool(tool.name, {name: value}))
            assert not re.search(r"pydantic|http|Input|cannot have|x{9}", str(told.value)), told.value


def test_the_server_says_its_version(address: str, ada: Agent) -> None:
    async def version(client: Client) -> str:
        return client.server_info.version if client.server_info else ""

    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert use(address, token_of(ada), version) == VERSION == stated


@pytest.mark.parametrize("version", ["2025-06-18", "2026-07-28"])
def test_a_client_that_goes_away_before_it_has_asked_is_no_error(
    ada: Agent, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    token = token_of(ada)
    with serving.tools() as address:
        parts = urlsplit(address)
        head = (
            f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {token}\r\n"
            "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
            f"MCP-Protocol-Version: {version}\r\nContent-Length: 1000\r\n\r\n"
        )
        with socket.create_connection((parts.hostname, parts.port)) as gone:
            gone.sendall(head.encode() + b'{"json')
        assert call(address, token, "memory_read", key="k").structured_content["found"] is False
    # By its end the server has seen everything through.
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("header", [None, "Bearer amt_aaaaaaaa_" + "x" * 43, "Basic YTpi", "Bearer é"])
def test_t3_a_bad_token_is_401(address: str, ada: Agent, header: str | None) -> None:
    headers = {} if header is None else {b"Authorization": header.encode("latin-1")}
    with httpx2.Client(trust_env=False) as http:
        answer = http.post(address, json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"


def test_t4_an_archived_agents_token_is_401(address: str, ada: Agent) -> None:
    token = token_of(ada)
    spaces.archive_agent(agent_id=ada.pk)
    with httpx2.Client(trust_env=False) as http:
        assert http.post(address, json={}, headers={"Authorization": f"Bearer {token}"}).status_code == 401


def test_a_token_that_made_its_calls_is_429(address: str, ada: Agent, settings: Any) -> None:
    settings.AGENTMEMORY_RATE_LIMIT = 1
    headers = {"Authorization": f"Bearer {token_of(ada)}"}
    with httpx2.Client(trust_env=False) as http:
        answers = [http.post(address, json={}, headers=headers) for _ in range(3)]
    assert answers[-1].status_code == 429
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
