"""The Python that the documents show does what they say: it is taken from them and run against a real server."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest
from django.core.asgi import get_asgi_application
from pytest_django import Settings

from agentmemory.models import Agent, Memory, Message
from agentmemory.search import vector_tables
from agentmemory.services import tokens
from config import embedded
from sessions_exec.services import webhooks
from tests.factories import AgentFactory
from tests.support import receivers, serving
from tests.support.model_server import ModelServer, Recorded, Reply

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def address() -> Iterator[str]:
    with serving.serving(get_asgi_application(), lifespan="off") as address:
        yield address


@pytest.fixture
def ada(address: str) -> Agent:
    return AgentFactory.create(handle="ada", space__slug="acme")


def code(document: str, *, address: str, agent: Agent) -> str:
    """The first piece of Python in a document, with this server and a token in it."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "docs" / document).read_text(), re.DOTALL)
    assert found
    shown = found.group(1).replace("http://127.0.0.1:8000", address)
    # The same client under the name that it has here.
    shown = re.sub(r"^import httpx$", "import httpx2 as httpx", shown, flags=re.MULTILINE)
    return shown.replace("amt_…", tokens.issue(space=agent.space, agent=agent).plain)


def test_the_loop_in_python(address: str, ada: Agent) -> None:
    names: dict[str, Any] = {}
    exec(code("connecting.md", address=address, agent=ada), names)
    assert list(Message.objects.order_by("seq").values_list("uid", "session__title")) == [
        ("u1", "Refunds"), ("a1", "Refunds"), ("r1", "Refunds"),
    ]  # fmt: skip
    assert isinstance(names["block"], str)


def tool_use(**given: Any) -> Any:
    block = {"type": "tool_use", "id": f"toolu_{given['command']}", "name": "memory", "input": given}
    return lambda request: answer([block], "tool_use")


def answer(content: list[Any], stop: str) -> Reply:
    body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5-5",
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    return Reply(headers={"content-type": "application/json"}, body=json.dumps(body).encode())


def results(request: Recorded) -> list[Any]:
    return [block for block in request.body["messages"][-1]["content"] if block["type"] == "tool_result"]


def test_the_memory_tool_in_the_sdks_tool_runner(
    address: str, ada: Agent, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = anthropic.Anthropic
    with ModelServer() as model:
        model.script(
            tool_use(command="create", path="/memories/refunds", file_text="Never twice."),
            tool_use(command="view", path="/memories/refunds"),
            tool_use(command="delete", path="/memories/none"),
            lambda request: answer([{"type": "text", "text": "Never twice, we said."}], "end_turn"),
        )
        direct = httpx2.Client(trust_env=False)
        client = real(api_key="k", base_url=model.address, http_client=direct, max_retries=0)
        monkeypatch.setattr(anthropic, "Anthropic", lambda: client)
        exec(code("memory-tool.md", address=address, agent=ada), {})
        created, viewed, failed = (results(request)[0] for request in model.requests[1:])
    assert "created successfully" in str(created["content"])
    assert "1\tNever twice." in str(viewed["content"]).replace("\\t", "\t")
    assert failed["is_error"] is True
    assert "does not exist" in str(failed["content"])
    assert "Never twice, we said." in capsys.readouterr().out
    assert Memory.objects.get().owner == ada


def test_the_check_of_a_webhooks_signature(settings: Settings, ada: Agent) -> None:
    settings.AGENTMEMORY_WEBHOOK_PRIVATE_ADDRESSES = True
    names: dict[str, Any] = {}
    exec(code("webhooks.md", address="", agent=ada), names)
    with receivers.receiver() as there:
        asked = {"operator": "olga", "reason": "to be told"}
        opened = webhooks.create(space=ada.space, name="w", url=there.url, events=["pass.failed"], **asked)
        webhooks.try_out(webhook_id=opened.webhook.pk, **asked)
        (got,) = there.got
    genuine = names["is_genuine"]
    assert genuine(opened.secret, got.headers, got.body)
    assert not genuine(opened.secret, got.headers, got.body + b" ")
    assert not genuine(opened.secret, {**got.headers, "webhook-timestamp": "1700000000"}, got.body)


def test_the_way_off_the_embedded_database_names_what_is_there() -> None:
    """Its role and database, and what the dump leaves behind: all vectors, and each function that writes them."""
    document = (ROOT / "docs" / "operations.md").read_text()
    (block,) = (each for each in re.findall(r"```sh\n(.*?)```", document, re.DOTALL) if "pg_dump" in each)
    assert f"-U {embedded.USER} " in block
    assert f" {embedded.DATABASE} |" in block
    assert all(table.name.endswith("vector") for table in vector_tables.TABLES)
    (dropped,) = re.findall(r"DROP FUNCTION IF EXISTS (.*) CASCADE", block)
    made = re.findall(r"CREATE OR REPLACE FUNCTION (\w+)", inspect.getsource(vector_tables))
    # A dump leaves no schema to be searched.
    assert sorted(dropped.split(", ")) == sorted(f"public.{name}" for name in made)
