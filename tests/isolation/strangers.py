"""Who has no business with a row, and everything that they must not learn of it."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from agentmemory.models import Memory, MemoryEvent, Message, Session, Token
from agentmemory.services import spaces, tokens
from distillation.models import Cursor
from sessions_exec.models import Execution, Input, SessionEvent
from tests.factories import AgentFactory, SpaceFactory
from tests.support.clients import Api, of_agent, of_space, result, user

CANARY = "zqcanary"
KEY = f"{CANARY}-key"
SESSION = f"{CANARY}-session"
UID = f"{CANARY}-uid"
INPUT = f"{CANARY}-input"


def make_victim() -> Api:
    """An agent with a memory, a session and an input that all speak of the canary."""
    api = of_agent(AgentFactory.create(space=SpaceFactory.create(slug="acme"), handle="ada"))
    api.write(KEY, f"The fox {CANARY}.", tags=[CANARY])
    api.say(SESSION, user(UID, f"The fox {CANARY}."), result("r1"))
    api.post(f"/sessions/{SESSION}/inputs", {"id": INPUT, "prompt": f"The fox {CANARY}."})
    return api


def neighbour(victim: Api) -> Api:
    """Another agent of the same space."""
    assert victim.space is not None
    return of_agent(spaces.ensure_agent(victim.space, "grace"))


def namesake(victim: Api) -> Api:
    """An agent of the same handle, in another space."""
    return of_agent(AgentFactory.create(handle="ada"))


def foreign_space(victim: Api) -> Api:
    """Somebody trusted for another space."""
    return of_space(AgentFactory.create(handle="ada").space)


def revoked(victim: Api) -> Api:
    assert victim.agent is not None
    api = of_agent(victim.agent)
    tokens.revoke(token_id=Token.objects.latest("pk").pk)
    return api


def expired(victim: Api) -> Api:
    assert victim.agent is not None
    api = of_agent(victim.agent)
    newest = Token.objects.latest("pk")
    Token.objects.filter(pk=newest.pk).update(created_at="2020-01-01T00:00:00Z", expires_at="2020-01-02T00:00:00Z")
    return api


def archived_agent(victim: Api) -> Api:
    assert victim.space is not None
    gone = spaces.ensure_agent(victim.space, "gone")
    api = of_agent(gone)
    spaces.archive_agent(agent_id=gone.pk)
    return api


def archived_space(victim: Api) -> Api:
    agent = AgentFactory.create()
    api = of_agent(agent)
    spaces.archive(space_id=agent.space_id)
    return api


def nobody(victim: Api) -> Api:
    return Api(token=None)


def state(api: Api) -> list[list[dict[str, Any]]]:
    """Every row of the victim, in every column."""
    assert api.agent is not None
    owned: tuple[QuerySet[Any], ...] = (
        Memory.objects.filter(owner=api.agent),
        MemoryEvent.objects.filter(owner=api.agent),
        Session.objects.filter(agent=api.agent),
        Message.objects.filter(session__agent=api.agent),
        Cursor.objects.filter(agent=api.agent),
        Input.objects.filter(session__agent=api.agent),
        Execution.objects.filter(session__agent=api.agent),
        SessionEvent.objects.filter(session__agent=api.agent),
    )
    return [list(rows.order_by("pk").values()) for rows in owned]


FOREIGN = (neighbour, namesake, foreign_space)
NOT_VALID = (revoked, expired, archived_agent, archived_space, nobody)
