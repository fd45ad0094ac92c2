"""The memory tools of a run: write, search, read, delete, as the agent itself, and nothing else.

What a call does and the message that tells it are one transaction of the caller's, so that neither is there without
the other. Every answer is bounded (A4), and a refusal is an answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from django.db import transaction
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentmemory.callers import Caller
from agentmemory.errors import AgentMemoryError, NotFound
from agentmemory.models import Memory
from agentmemory.search import ranking
from agentmemory.services import memories

MOST_CHARS = 20_000
MOST_CHARS_OF_A_FIND = 2_000
MOST_CALLS = 16
"""Calls of one answer; more are refused."""

Scope = Literal["mine", "space"]
Block = dict[str, Any]


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _Write(_Arguments):
    key: str = Field(min_length=1, max_length=200, description="What the memory is kept under, in kebab-case.")
    content: str = Field(min_length=1, max_length=10_000, description="One self-contained statement.")
    tags: list[str] | None = Field(default=None, max_length=50)
    scope: Scope | None = Field(default=None, description="`mine` (default) or `space`, shared with its agents.")


class _Search(_Arguments):
    query: str = Field(min_length=1, max_length=2_000, description="Words, names or identifiers.")
    limit: int = Field(default=10, ge=1, le=20)
    scope: Scope | None = Field(default=None, description="Omitted: both.")


class _Named(_Arguments):
    key: str = Field(min_length=1, max_length=200)
    scope: Scope | None = Field(default=None, description="Omitted: both.")


@dataclass(frozen=True, kw_only=True)
class _Tool:
    description: str
    arguments: type[_Arguments]
    run: Callable[[Caller, Any], Any]


def definitions() -> list[Block]:
    """The tools as a model is told of them."""
    return [
        {"name": name, "description": tool.description, "input_schema": tool.arguments.model_json_schema()}
        for name, tool in TOOLS.items()
    ]


def results(calls: list[Block], *, caller: Caller) -> list[Block]:
    """Make the calls of one answer, in their order. Called within the transaction that keeps their results."""
    return [_result(call, caller=caller, allowed=at < MOST_CALLS) for at, call in enumerate(calls)]


def _result(call: Block, *, caller: Caller, allowed: bool) -> Block:
    text, failed = _perform(call, caller) if allowed else (f"At most {MOST_CALLS} calls an answer.", True)
    said = text if len(text) <= MOST_CHARS else f"{text[:MOST_CHARS]}… [{len(text) - MOST_CHARS} more characters]"
    block: Block = {"type": "tool_result", "tool_use_id": call["id"], "content": said}
    return {**block, "is_error": True} if failed else block


def _perform(call: Block, caller: Caller) -> tuple[str, bool]:
    tool = TOOLS.get(call["name"])
    if tool is None:
        return f"There is no tool {call['name'][:100]!r}.", True
    try:
        given = tool.arguments.model_validate(call.get("input") or {})
        # A write that is refused takes nothing with it but itself.
        with transaction.atomic():
            return json.dumps(tool.run(caller, given), ensure_ascii=False), False
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:5])
        return f"Wrong arguments: {wrong}", True
    except AgentMemoryError as error:
        return str(error), True


def _write(caller: Caller, given: _Write) -> Mapping[str, Any]:
    draft = memories.Draft(key=given.key, content=given.content, tags=given.tags, scope=given.scope)
    written = memories.put(caller=caller, draft=draft)
    return {"written": True, "key": written.memory.key, "version": written.memory.version}


def _search(caller: Caller, given: _Search) -> Mapping[str, Any]:
    found = ranking.search(caller=caller, q=given.query, scope=given.scope, limit=given.limit)
    return {"items": [_shown(item.memory, most=MOST_CHARS_OF_A_FIND) for item in found.items]}


def _read(caller: Caller, given: _Named) -> Mapping[str, Any]:
    try:
        return {"found": True, "memory": _shown(memories.get(caller=caller, key=given.key, scope=given.scope))}
    except NotFound:
        return {"found": False}


def _delete(caller: Caller, given: _Named) -> Mapping[str, Any]:
    return {"deleted": memories.delete(caller=caller, key=given.key, scope=given.scope) is not None}


def _shown(memory: Memory, *, most: int = MOST_CHARS) -> dict[str, Any]:
    content = memory.content if len(memory.content) <= most else f"{memory.content[:most]}…"
    scope = "mine" if memory.owner_id else "space"
    return {"key": memory.key, "origin": memory.origin, "scope": scope, "content": content, "tags": memory.tags}


TOOLS: dict[str, _Tool] = {
    "memory_write": _Tool(
        description="Keep one statement under a key, for later conversations. Writing to a key again replaces it.",
        arguments=_Write,
        run=_write,
    ),
    "memory_search": _Tool(
        description="Find what earlier conversations kept. Use it whenever a question may have been settled before.",
        arguments=_Search,
        run=_search,
    ),
    "memory_read": _Tool(description="Read the memory of a key that is known, whole.", arguments=_Named, run=_read),
    "memory_delete": _Tool(
        description="Delete the memory of a key that is wrong or no longer true. An operator can bring it back.",
        arguments=_Named,
        run=_delete,
    ),
}
