"""What is found, and what an agent is given at start-up."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from agentmemory.api.paging import Page
from agentmemory.api.shapes import Out
from agentmemory.api.shapes.memories import MemoryOut, memory_fields
from agentmemory.search import ranking
from agentmemory.services import context


class FoundOut(MemoryOut):
    """A memory that a search found."""

    score: float = Field(description="0 to 1.")
    matched: list[str] = Field(description="What found it: `text`, `vector`.")
    explain: dict[str, Any] | None = Field(default=None, description="How it was found, where that was asked for.")


class ResultsOut(Page[FoundOut]):
    """What a search found, the best first."""

    pending: int = Field(description="Memories in view that have no vector yet; 0 where there are no vectors.")


class ShownOut(MemoryOut):
    """A memory as the block shows it: `content` may be its beginning alone."""

    truncated: bool


class ContextOut(Out):
    """What an agent should know now. No memory is in both lists; `text` is both, ready for a prompt."""

    core: list[ShownOut]
    relevant: list[ShownOut]
    text: str


def found_out(found: ranking.Found) -> FoundOut:
    """A memory with how it was found."""
    explained = {} if found.explain is None else {"explain": found.explain}
    return FoundOut(**memory_fields(found.memory), score=found.score, matched=list(found.matched), **explained)


def shown_out(shown: context.Shown) -> ShownOut:
    """A memory as the block shows it."""
    fields = {**memory_fields(shown.memory), "content": shown.excerpt}
    return ShownOut(**fields, truncated=shown.excerpt != shown.memory.content)


def context_out(built: context.Context) -> ContextOut:
    """What an agent gets at start-up."""
    return ContextOut(
        core=[shown_out(shown) for shown in built.core],
        relevant=[shown_out(shown) for shown in built.relevant],
        text=built.text,
    )
