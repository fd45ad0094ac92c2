"""Memories, their versions, and batches of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, cast
from uuid import UUID

from pydantic import Field, WrapValidator

from agentmemory.api.fields import NOT_BLANK, Moment, Text, Texts, Timestamp
from agentmemory.api.shapes import In, Out
from agentmemory.models import Agent, Memory
from agentmemory.models.memories import CONTENT_LENGTH, CONTEXT_LENGTH, KEY_LENGTH, TAG_COUNT
from agentmemory.services import memories, sources


class MemoryIn(In):
    """A memory to be written. What is left out, or null, keeps what the memory has."""

    content: Text = Field(
        description=f"Trimmed; 1 to {CONTENT_LENGTH:,} characters.", json_schema_extra={"pattern": NOT_BLANK}
    )
    context: Text | None = Field(
        default=None,
        description=f"Helps to find it and is never shown in prompts; at most {CONTEXT_LENGTH:,} characters.",
    )
    tags: Texts | None = Field(default=None, description=f"At most {TAG_COUNT}; `[]` clears them.")
    scope: Literal["mine", "space"] | None = Field(
        default=None, description="Omitted: `mine` with an agent token, `space` with a space token."
    )
    importance: float | None = Field(default=None, ge=0, le=1)
    pinned: bool | None = None
    expires_at: Moment | None = Field(default=None, description="null takes an expiry away.")

    def draft(self, *, key: str, owner: Agent | None) -> memories.Draft:
        """What is to be written under `key`; `owner` is the one that a space token names."""
        return memories.Draft(
            key=key,
            content=self.content,
            context=self.context,
            tags=self.tags,
            scope=self.scope,
            owner=owner,
            importance=self.importance,
            pinned=self.pinned,
            expires_at=self.expires_at,
            never_expires="expires_at" in self.model_fields_set and self.expires_at is None,
        )


class BatchMemoryIn(MemoryIn):
    """One memory of a batch."""

    key: Text = Field(description=f"Trimmed; 1 to {KEY_LENGTH} printable characters.")


def _as_it_came(value: Any, validate: Any) -> Any:
    """A memory that breaks a rule refuses none of the others: each is read by itself, later."""
    return value


class BatchIn(In):
    """Memories to be written, each judged on its own."""

    memories: list[Annotated[BatchMemoryIn, WrapValidator(_as_it_came)]]


class BatchItemOut(Out):
    """What became of one memory of a batch."""

    key: str | None
    status: int
    id: UUID | None = None
    version: int | None = None
    error: str | None = None


class BatchOut(Out):
    """What became of a batch, in its order."""

    items: list[BatchItemOut]


class MergedOut(Out):
    """A memory that went into another one."""

    id: UUID
    key: str


class MemoryOut(Out):
    """A memory."""

    id: UUID
    key: str
    origin: Literal["curated", "distilled"]
    scope: Literal["mine", "space"]
    owner: str | None = Field(description="The handle of the agent that it is private to; null: shared.")
    content: str
    tags: list[str]
    importance: float
    pinned: bool
    version: int
    access_count: int
    last_accessed_at: Timestamp | None
    created_at: Timestamp
    updated_at: Timestamp
    expires_at: Timestamp | None
    merged_from: list[MergedOut] = Field(description="What went into it: those keys answer with this memory.")


class SourceOut(Out):
    """One message that a distilled memory rests on, with the speech around it."""

    session: str
    uid: str
    seq: int
    quote: str
    verified: bool = Field(description="Whether the quote occurs in its message.")
    before: str | None
    after: str | None


class MemoryWithSourcesOut(MemoryOut):
    """A memory, and what it rests on."""

    sources: list[SourceOut]


class DeletedOut(Out):
    """What a deletion did. Without `id` there was nothing to delete."""

    deleted: bool
    id: UUID | None = None


def memory_fields(memory: Memory) -> dict[str, Any]:
    """The members of a memory that was read with its use, its owner and what was merged into it."""
    used = cast(Any, memory)
    return {
        "id": memory.pk,
        "key": memory.key,
        "origin": memory.origin,
        "scope": "space" if memory.owner_id is None else "mine",
        "owner": memory.owner.handle if memory.owner is not None else None,
        "content": memory.content,
        "tags": memory.tags,
        "importance": memory.importance,
        "pinned": memory.pinned,
        "version": memory.version,
        "access_count": used.access_count,
        "last_accessed_at": used.last_accessed_at,
        "created_at": memory.created_at,
        "updated_at": memory.updated_at,
        "expires_at": memory.expires_at,
        "merged_from": used.merged_from,
    }


def memory_out(memory: Memory) -> MemoryOut:
    """A memory as it stands in lists."""
    return MemoryOut(**memory_fields(memory))


def memory_with_sources(memory: Memory, rests_on: Sequence[sources.Source]) -> MemoryWithSourcesOut:
    """A memory as it is read by itself."""
    return MemoryWithSourcesOut(**memory_fields(memory), sources=[SourceOut(**vars(source)) for source in rests_on])
