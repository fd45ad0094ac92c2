"""Memories as distillation writes them: of the session's agent, with their sources, never over a person's word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from agentmemory import authorship
from agentmemory.authorship import Author
from agentmemory.errors import Invalid
from agentmemory.models import Agent, Memory, MemorySource, Message, Session
from agentmemory.models.memories import CONTEXT_LENGTH
from agentmemory.services import limits, memories

SCREENING = Author(kind="system", name="screening")
"""Who withdraws what is held until a person has looked at it."""


class Action(StrEnum):
    """What a candidate became."""

    CREATED = "created"
    UPDATED = "updated"
    KNOWN = "known"
    HELD = "held"


@dataclass(frozen=True, kw_only=True)
class Source:
    """A message that a memory rests on, and the words of it."""

    message: Message
    quote: str
    verified: bool


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What distillation wants remembered; `held` says why it is to wait for a person, where it is."""

    key: str
    content: str
    tags: Sequence[str]
    context: str
    sources: Sequence[Source]
    held: str = ""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    memory: Memory
    action: Action


def write(*, session: Session, finding: Finding, pass_id: int) -> Outcome:
    """Write one finding as a distilled memory of the session's agent, within the caller's transaction (D1, D10).

    The same content again only gains sources. What is held is written withdrawn: a person reinstates it. Raises
    `Invalid` for what may not be kept, among it a memory that a person has edited or withdrawn: nothing automatic goes
    over that.
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
        update_fields=["session", "message", "seq", "quote", "verified", "pass_id", "gone_at", "came_with"],
    )


def _upsert(agent: Agent, *, key: str, content: str, finding: Finding, pass_id: int) -> tuple[Memory, Action]:
    place = {"space_id": agent.space_id, "owner": agent, "origin": Memory.Origin.DISTILLED, "key": key}
    values = {
        "content": content,
        "tags": limits.tags(finding.tags),
        "context": finding.context[:CONTEXT_LENGTH],
        **_held(finding.held),
    }
    standing = _stands_for(place)
    if standing is not None:
        _refuse_over_a_person(standing)
        return standing, _update(standing, values)
    # Another session of this agent may write the key at the same moment.
    memory, created = memories.locked_or_new(place=place, values=values, created_by=f"pass:{pass_id}")
    if created:
        return memory, Action.HELD if finding.held else Action.CREATED
    _refuse_over_a_person(memory)
    return memory, _update(memory, values)


def _stands_for(place: dict[str, Any]) -> Memory | None:
    """The memory, locked, that stands for the one of this place since a merge (M9); nothing where none does.

    Where it was deleted or given to another, the one of this place stands by itself again, as soon as it is written.
    """
    merged = Memory.objects.kept().filter(**place, merged_into__isnull=False).values_list("pk", flat=True)
    rows = Memory.objects.kept().select_for_update(of=("self",), no_key=True).filter(owner=place["owner"])
    before: set[UUID] = set()
    while (ends := Memory.objects.ends_of(merged)) != before:
        row = rows.filter(pk__in=ends, merged_into__isnull=True).first()
        if row is not None:
            return row
        # It may have been merged further while we waited for its lock.
        before = ends
    return None


def _refuse_over_a_person(memory: Memory) -> None:
    if memory.edited_by:
        raise Invalid(f"{memory.edited_by} edited this memory by hand.", field="key")
    if memory.withdrawn_by and not memory.withdrawn_by.startswith(("pass:", "system:")):
        raise Invalid(f"{memory.withdrawn_by} withdrew this memory.", field="key")


def _update(memory: Memory, values: Mapping[str, Any]) -> Action:
    waits = memory.withdrawn_by == values.get("withdrawn_by")
    if memory.content == values["content"] and (waits or memories.is_live(memory)):
        return Action.KNOWN
    changes = {**memories.brought_back(memory), **values, "expires_at": None}
    for field, value in changes.items():
        setattr(memory, field, value)
    memories.save_version(memory, list(changes))
    return Action.HELD if "withdrawn_by" in values else Action.UPDATED


def _held(reason: str) -> dict[str, Any]:
    """What keeps a memory out of search, context and lists, if there is a reason to."""
    if not reason:
        return {}
    return {"withdrawn_at": timezone.now(), "withdrawn_by": str(SCREENING), "withdrawn_reason": reason}
