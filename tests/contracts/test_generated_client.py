"""A client that a generator makes of the document works, without a line of it written by hand."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from django.core.asgi import get_asgi_application
from django.test import Client

from agentmemory.models import Agent
from agentmemory.services import tokens
from tests.factories import AgentFactory
from tests.support import serving

pytest.importorskip("openapi_python_client")

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of the package that was made of the document."""
    folder = tmp_path_factory.mktemp("generated")
    document = folder / "openapi.json"
    document.write_bytes(Client().get("/api/v1/openapi.json").content)
    (folder / "config.yaml").write_text("post_hooks: []\n")
    made = subprocess.run(
        [sys.executable, "-m", "openapi_python_client", "generate", "--path", str(document), "--meta", "none",
         "--config", str(folder / "config.yaml"), "--output-path", str(folder / "generated_client"),
         "--fail-on-warning"],
        capture_output=True, text=True, check=False, cwd=folder,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    sys.path.insert(0, str(folder))
    yield "generated_client"
    sys.path.remove(str(folder))


@pytest.fixture
def address() -> Iterator[str]:
    with serving.serving(get_asgi_application(), lifespan="off") as address:
        yield address


def test_it_writes_finds_and_pushes(generated: str, address: str) -> None:
    ada: Agent = AgentFactory.create(handle="ada")
    token = tokens.issue(space=ada.space, agent=ada).plain

    def part(name: str) -> ModuleType:
        return importlib.import_module(f"{generated}.{name}")

    models = part("models")
    client = part("client").AuthenticatedClient(
        base_url=address, token=token, raise_on_unexpected_status=True, httpx_args={"trust_env": False}
    )

    def call(where: str, **given: Any) -> Any:
        answer = part(f"api.{where}").sync_detailed(client=client, **given)
        return int(answer.status_code), answer.parsed

    with client:
        status, written = call("memories.write_memory", key="a/b c", body=models.MemoryIn(content="We listen on 8080."))
        assert (status, written.key, written.owner, written.version) == (201, "a/b c", "ada", 1)
        status, found = call("search.search_memories", q="8080")
        assert (status, [item.key for item in found.items]) == (200, ["a/b c"])
        assert call("sessions.put_session", id="s1", body=models.SessionIn(title="T"))[0] == 201
        message = models.MessageIn.from_dict({"uid": "u1", "type": "user", "content": "Hello."})
        body = models.MessagesIn(messages=[message])
        assert call("sessions.append_messages", id="s1", body=body)[1].accepted == 1
        status, page = call("sessions.list_messages", id="s1")
        assert [(item.uid, item.content) for item in page.items] == [("u1", "Hello.")]
        status, problem = call("memories.read_memory", key="none")
        assert (status, problem.status) == (404, 404)
        json.dumps(page.to_dict())
