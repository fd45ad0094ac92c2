"""What a line of an export may hold, for those who read one: the format of `exporting`, with its limits."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

from agentmemory.models.memories import CONTENT_LENGTH, CONTEXT_LENGTH, KEY_LENGTH, TAG_COUNT, TAG_LENGTH

MOST = 10_000
"""Sources, versions and consolidations of one memory, each."""


def _text(most: int) -> StringConstraints:
    return StringConstraints(max_length=most, pattern="^[^\\x00]*$")


Word = Annotated[str, _text(200)]
Name = Annotated[str, _text(300)]
Reason = Annotated[str, _text(500)]
Handle = Annotated[str, _text(100)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Header(_Part):
    """The first line."""

    format: Literal["agentmemory.memories"]
    version: Literal[1]
    space: str
    agent: str | None


class State(_Part):
    """A memory, or one of its versions."""

    owner: Handle | None
    origin: Literal["curated", "distilled"]
    key: Annotated[str, StringConstraints(min_length=1, max_length=KEY_LENGTH, pattern="^[^\\x00]*$")]
    content: Annotated[str, StringConstraints(min_length=1, max_length=CONTENT_LENGTH, pattern="^[^\\x00]*$")]
    tags: Annotated[list[Annotated[str, _text(TAG_LENGTH)]], Field(max_length=TAG_COUNT)]
    context: Annotated[str, _text(CONTEXT_LENGTH)]
    importance: Annotated[float, Field(ge=0, le=1)]
    pinned: bool
    version: Annotated[int, Field(ge=1, le=2**31 - 1)]
    created_by: Name
    created_at: AwareDatetime
    updated_at: AwareDatetime
    expires_at: AwareDatetime | None
    deleted_at: AwareDatetime | None
    withdrawn_at: AwareDatetime | None
    withdrawn_by: Name
    withdrawn_reason: Reason
    edited_by: Name
    merged_into: UUID | None
    repeats: UUID | None


class Version(State):
    """One version, and who wrote it when and why."""

    label: Literal["written", "changed"]
    at: AwareDatetime
    author: Name | None
    why: Annotated[str, _text(2_000)] | None


class Source(_Part):
    """A message that a memory rests on."""

    session_name: Word
    uid: Word
    seq: Annotated[int, Field(ge=0, le=2**63 - 1)]
    quote: Annotated[str, _text(CONTENT_LENGTH)]
    verified: bool
    version: Annotated[int, Field(ge=1, le=2**31 - 1)]
    came_with: UUID | None
    gone_at: AwareDatetime | None
    created_at: AwareDatetime


class Done(_Part):
    """A merge, a link or a forgetting."""

    kind: Literal["merge", "link", "forget"]
    other: UUID | None
    why: Name
    author: Name
    reason: Reason
    tags_added: list[Annotated[str, _text(TAG_LENGTH)]]
    at: AwareDatetime
    undone_at: AwareDatetime | None
    undone_by: Name
    undone_reason: Reason


class Line(State):
    """One memory with all that belongs to it."""

    id: UUID
    used: Annotated[int, Field(ge=0, le=2**62)]
    last_used_at: AwareDatetime | None
    sources: Annotated[list[Source], Field(max_length=MOST)]
    history: Annotated[list[Version], Field(max_length=MOST)]
    consolidations: Annotated[list[Done], Field(max_length=MOST)]
