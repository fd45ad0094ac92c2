"""What is found, and what an agent is given at start-up."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from agentmemory.api.fields import Timestamp
from agentmemory.api.paging import Page
from agentmemory.api.shapes import Out
from agentmemory.api.shapes.memories import MemoryOut, memory_fields
from agentmemory.api.shapes.transcripts import Type
from agentmemory.models import Message
from agentmemory.search import ranking, talk
from agentmemory.services import context

LONGEST_TEXT = 20_000


class FoundOut(MemoryOut):
    """A memory that a search found."""

    score: float = Field(description="0 to 1.")
    matched: list[str] = Field(description="What found it: `text`, `vector`.")
    explain: dict[str, Any] | None = Field(default=None, description="How it was found, where that was asked for.")


class ResultsOut(Page[FoundOut]):
    """What a search found, the best first."""

    pending: int = Field(description="Memories in view that have no vector yet; 0 where there are no vectors.")


class SaidOut(Out):
    """What was said before or after."""

    seq: int
    uid: str
    type: Type
    text: str = Field(description=f"What was said, its first {LONGEST_TEXT:,} characters.")
    occurred_at: Timestamp | None


class SaidFoundOut(SaidOut):
    """A message that a search found, with those before and after it that say something, in their order."""

    session: str
    score: float = Field(description="0 to 1.")
    before: list[SaidOut]
    after: list[SaidOut]


class TalkOut(Page[SaidFoundOut]):
    """What a search found, the best first."""

    pending: int = Field(description="Messages in view that have no vector yet; 0 where there are no vectors.")


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


def said_out(found: talk.Found) -> SaidFoundOut:
    """A message with how well it was found, and what was said around it."""
    return SaidFoundOut(
        **_said(found.message),
        session=found.message.session.name,
        score=found.score,
        before=[SaidOut(**_said(message)) for message in found.before],
        after=[SaidOut(**_said(message)) for message in found.after],
    )


def _said(message: Message) -> dict[str, Any]:
    values: dict[str, Any] = {name: getattr(message, name) for name in ("seq", "uid", "type", "occurred_at")}
    return {**values, "text": message.text[:LONGEST_TEXT]}


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
