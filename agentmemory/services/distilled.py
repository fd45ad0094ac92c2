"""Memories as distillation writes them: of the session's agent, with their sources, never over a person's word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from django.db import transaction
from django.utils import timezone

from agentmemory import authorship
from agentmemory.authorship import Author
from agentmemory.errors import Invalid
from agentmemory.models import Agent, Memory, MemorySource, Message, Session
from agentmemory.models.memories import CONTEXT_LENGTH
from agentmemory.services import limits, memories


class Action(StrEnum):
    """What a candidate became."""

    CREATED = "created"
    UPDATED = "updated"
    KNOWN = "known"


@dataclass(frozen=True, kw_only=True)
class Source:
    """A message that a memory rests on, and the words of it."""

    message: Message
    quote: str
    verified: bool


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What distillation wants remembered."""

    key: str
    content: str
    tags: Sequence[str]
    context: str
    sources: Sequence[Source]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    memory: Memory
    action: Action


def write(*, session: Session, finding: Finding, pass_id: int) -> Outcome:
    """Write one finding as a distilled memory of the session's agent, within the caller's transaction (D1, D10).

    The same content again only gains sources. Raises `Invalid` for what may not be kept, among it a memory that a
    person has edited or withdrawn: nothing automatic goes over that.
    """
    content = limits.content(finding.content)
    key = limits.key(finding.key)
    with transaction.atomic(), authorship.acting(Author(kind="pass", name=str(pass_id))):
        memory, action = _upsert(session.agent, key=key, content=content, finding=finding, pass_id=pass_id)
        add_sources(memory=memory, session=session, sources=finding.sources, pass_id=pass_id)
    return Outcome(memory=memory, action=action)


def add_sources(*, memory: Memory, session: Session, sources: Sequence[Source], pass_id: int) -> None:
    """Let the memory's current version rest on these messages too."""
    MemorySource.objects.bulk_create(
        [
            MemorySource(
                space_id=session.space_id,
                memory=memory,
                session=session,
                message=source.message,
                session_name=session.name,
                uid=source.message.uid,
                seq=source.message.seq,
                quote=source.quote,
                verified=source.verified,
                pass_id=pass_id,
                version=memory.version,
            )
            for source in sources
        ],
        update_conflicts=True,
        unique_fields=["memory", "version", "session_name", "uid"],
        update_fields=["session", "message", "seq", "quote", "verified", "pass_id", "gone_at"],
    )


def _upsert(agent: Agent, *, key: str, content: str, finding: Finding, pass_id: int) -> tuple[Memory, Action]:
    place = {"space_id": agent.space_id, "owner": agent, "origin": Memory.Origin.DISTILLED, "key": key}
    existing = Memory.objects.kept().select_for_update(of=("self",)).filter(**place)
    memory = existing.first()
    if memory is None:
        memory = memories.insert_unless_taken(
            **place,
            content=content,
            tags=limits.tags(finding.tags),
            context=finding.context[:CONTEXT_LENGTH],
            created_by=f"pass:{pass_id}",
        )
        if memory is not None:
            return memory, Action.CREATED
        # Another session of this agent wrote the key at the same moment.
        memory = existing.get()
    _refuse_over_a_person(memory)
    return memory, _update(memory, content, finding)


def _refuse_over_a_person(memory: Memory) -> None:
    if memory.edited_by:
        raise Invalid(f"{memory.edited_by} edited this memory by hand.", field="key")
    if memory.withdrawn_by and not memory.withdrawn_by.startswith(("pass:", "system:")):
        raise Invalid(f"{memory.withdrawn_by} withdrew this memory.", field="key")


def _update(memory: Memory, content: str, finding: Finding) -> Action:
    gone = memory.withdrawn_at is not None or (memory.expires_at is not None and memory.expires_at <= timezone.now())
    if memory.content == content and not gone:
        return Action.KNOWN
    memory.content = content
    memory.tags = limits.tags(finding.tags)
    memory.context = finding.context[:CONTEXT_LENGTH]
    memory.expires_at = None
    memory.withdrawn_at, memory.withdrawn_by, memory.withdrawn_reason = None, "", ""
    memories.save_version(
        memory, ["content", "tags", "context", "expires_at", "withdrawn_at", "withdrawn_by", "withdrawn_reason"]
    )
    return Action.UPDATED
