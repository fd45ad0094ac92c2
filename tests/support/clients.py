"""Clients of the JSON views: they speak as an outside program does, with a token and nothing else."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pytest
from django.test import Client

from agentmemory.models import Agent, Space
from agentmemory.services import spaces, tokens
from tests.factories import AgentFactory, SpaceFactory

PREFIX = "/api/v1"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer. `body` is its JSON."""

    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)

    @property
    def text(self) -> str:
        return self.raw.decode()

    @property
    def told(self) -> bytes:
        """All that it tells its caller of the matter: not by which id the log knows the request."""
        return self.raw.replace(self.headers.get("X-Request-ID", "").encode(), b"")

    @property
    def kind(self) -> str:
        """How the type of a problem ends."""
        assert self.headers["Content-Type"] == "application/problem+json", self
        return str(self.body["type"]).rpartition(":")[2]


@dataclass(frozen=True, kw_only=True)
class Api:
    """Calls with the token of one agent, or of a whole space."""

    token: str | None
    space: Space | None = None
    agent: Agent | None = None
    client: Client = field(default_factory=lambda: Client(raise_request_exception=False))

    def call(self, method: str, path: str, body: Any = None, *, raw: bytes | None = None, **headers: Any) -> Answer:
        """One call. `headers` are named with `_` for `-`; `raw` is sent as it is, instead of a body."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token is not None:
            sent.setdefault("Authorization", f"Bearer {self.token}")
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        response = self.client.generic(method, PREFIX + path, data, content_type="application/json", headers=sent)
        return Answer(status=response.status_code, headers=dict(response.headers), raw=response.content)

    def get(self, path: str, **headers: Any) -> Answer:
        return self.call("GET", path, **headers)

    def put(self, path: str, body: Any = None, **headers: Any) -> Answer:
        return self.call("PUT", path, body, **headers)

    def post(self, path: str, body: Any = None, **headers: Any) -> Answer:
        return self.call("POST", path, body, **headers)

    def patch(self, path: str, body: Any = None, **headers: Any) -> Answer:
        return self.call("PATCH", path, body, **headers)

    def delete(self, path: str, **headers: Any) -> Answer:
        return self.call("DELETE", path, **headers)

    def write(self, key: str, content: str = "Something.", **more: Any) -> Any:
        """Write a memory and return it."""
        answer = self.put(f"/memories/{quote(key, safe='')}", {"content": content, **more})
        assert answer.status in {200, 201}, answer
        return answer.body

    def say(self, session: str, *messages: dict[str, Any], **more: Any) -> Any:
        """Append messages to a session, made where it is missing, and return what became of them."""
        assert self.put(f"/sessions/{session}").status in {200, 201}
        answer = self.post(f"/sessions/{session}/messages", {"messages": list(messages), **more})
        assert answer.status in {200, 201}, answer
        return answer.body


def user(uid: str, content: Any = "A question.", **more: Any) -> dict[str, Any]:
    """A message of a person."""
    return {"uid": uid, "type": "user", "content": content, **more}


def assistant(uid: str, content: Any = "An answer.", **more: Any) -> dict[str, Any]:
    """A message of the agent."""
    return {"uid": uid, "type": "assistant", "content": content, **more}


def result(uid: str) -> dict[str, Any]:
    """The end of a turn."""
    return {"uid": uid, "type": "result", "content": ""}


def of_agent(agent: Agent) -> Api:
    """A client with a new token of this agent."""
    return Api(token=tokens.issue(space=agent.space, agent=agent).plain, space=agent.space, agent=agent)


def of_space(space: Space) -> Api:
    """A client with a new token of a whole space."""
    return Api(token=tokens.issue(space=space).plain, space=space)


@pytest.fixture
def api(db: None) -> Api:
    """A client with the token of the agent `ada` in a space of her own."""
    return of_agent(AgentFactory.create(space=SpaceFactory.create(slug="acme"), handle="ada"))


@pytest.fixture
def other(api: Api) -> Api:
    """Another agent of the same space, `grace`."""
    assert api.space is not None
    return of_agent(spaces.ensure_agent(api.space, "grace"))


@pytest.fixture
def whole_space(api: Api) -> Api:
    """A client with a token of the whole space of `api`."""
    assert api.space is not None
    return of_space(api.space)
