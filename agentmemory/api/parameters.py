"""What the query of a call says: whose, which, how many. One rule for read, search, list and delete (M3)."""

from __future__ import annotations

from typing import Literal

from django.urls import register_converter
from pydantic import BaseModel, Field

from agentmemory.api.fields import Limit, Text
from agentmemory.callers import Caller, Scope
from agentmemory.errors import Invalid, NotFound
from agentmemory.models import Agent, Session
from agentmemory.services import limits, memories, sessions, spaces

Origin = Literal["curated", "distilled"]


class RestConverter:
    """The whole rest of a path, slashes, line ends, emptiness and all: it is for the view to say what is wrong."""

    regex = r"(?s:.*)"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


register_converter(RestConverter, "rest")


class OwnerQuery(BaseModel):
    """For space tokens: whose."""

    owner: Text | None = Field(
        default=None, description="The handle of an agent. Space tokens alone; an agent token gets 422."
    )


class ScopeQuery(OwnerQuery):
    """Which of the memories that the caller may see."""

    scope: Scope | None = Field(
        default=None,
        description="`mine`, `space` (shared), or omitted for both; space tokens: `mine` with `owner`, `all` for "
        "everyone's, omitted for shared.",
    )


class FoundQuery(ScopeQuery):
    """Which memories of which origin."""

    origin: Origin | None = None


class ListQuery(FoundQuery):
    """A page of memories."""

    tag: Text | None = None
    limit: Limit = 50
    after: str | None = None


class WriteQuery(OwnerQuery):
    """How a memory is written."""

    secrets: Literal["keep"] | None = Field(default=None, description="`keep` writes content that holds a secret.")


def owner_of_scope(caller: Caller, query: ScopeQuery) -> Agent | None:
    """The agent whose memories are meant by `mine`, where the token does not say it. Raises `Invalid`, `NotFound`."""
    owner = owner_named(caller, query.owner)
    if caller.agent is not None:
        if query.scope == "all":
            raise Invalid("An agent token has no scope all.", field="query.scope")
        return None
    if query.scope == "mine" and owner is None:
        raise Invalid("A space token names the owner of what is mine.", field="query.owner")
    if query.scope != "mine" and owner is not None:
        raise Invalid("An owner goes with the scope mine.", field="query.owner")
    return owner


def owner_named(caller: Caller, handle: str | None) -> Agent | None:
    """The agent that a space token names. Raises `Invalid` for an agent token, `NotFound` for an unknown handle."""
    if handle is None:
        return None
    if caller.agent is not None:
        raise Invalid("An agent token acts as its agent: it names no owner.", field="query.owner")
    return spaces.get_agent(caller.space, handle)


def acting_agent(caller: Caller, handle: str | None) -> Agent:
    """The agent that something is made for: the caller's own, or the one that a space token names.

    Raises `Invalid`, `NotFound`.
    """
    owner = owner_named(caller, handle) or caller.agent
    if owner is None:
        raise Invalid("A space token names the owner.", field="query.owner")
    return owner


def session_named(caller: Caller, name: str, query: OwnerQuery) -> Session:
    """The session that a call names. Raises `NotFound`, `Invalid`."""
    name = storable_or_absent(name)
    return sessions.find(caller=caller, name=name, agent=owner_named(caller, query.owner))


def expected(if_match: str | None, if_none_match: str | None) -> memories.Expected:
    """What `If-Match` and `If-None-Match` ask for. Raises `Invalid` for a header of another shape.

    Weak tags match nothing here, as RFC 9110 has it.
    """
    if if_none_match is not None and if_none_match.strip() != "*":
        raise Invalid("Only * is understood.", field="header.If-None-Match")
    there = False if if_none_match is not None else None
    if if_match is None:
        return memories.Expected(there=there)
    if if_match.strip() == "*":
        if there is False:
            raise Invalid("It cannot be there and not be there.", field="header.If-Match")
        return memories.Expected(there=True)
    return memories.Expected(there=there, versions=_versions(if_match))


def _versions(if_match: str) -> frozenset[int]:
    """The versions of a list of entity tags. A tag that is no version is one that no memory is at."""
    found = set()
    for tag in if_match.split(","):
        strong = tag.strip().removeprefix("W/")
        if len(strong) < 2 or not (strong[0] == strong[-1] == '"') or '"' in strong[1:-1]:
            raise Invalid('Versions stand in quotes, as in "3".', field="header.If-Match")
        if strong == tag.strip() and strong[1:-1].isascii() and strong[1:-1].isdigit() and len(strong) < 20:
            found.add(int(strong[1:-1]))
    return frozenset(found)


def storable_or_absent(value: str) -> str:
    """A name from a path. Raises `NotFound` for one that nothing can have."""
    if not limits.storable(value):
        raise NotFound("There is nothing of this name.")
    return value
