"""The versions of a memory."""

from __future__ import annotations

from typing import Any, Literal

from agentmemory.api.fields import Timestamp
from agentmemory.api.shapes import Out


class AuthorOut(Out):
    """Who wrote: an agent, an operator, a space token, a pass of distillation, or the system's upkeep."""

    kind: str
    name: str


class VersionOut(Out):
    """One version of a memory: who, when, what."""

    version: int
    who: AuthorOut
    when: Timestamp
    what: Literal["written", "changed", "deleted", "withdrawn", "merged", "purged"]
    reason: str
    key: str
    content: str
    tags: list[str]
    importance: float
    pinned: bool
    owner: str | None
    expires_at: Timestamp | None


def version_out(event: Any) -> VersionOut:
    """A version as the database recorded it."""
    context = event.pgh_context or {}
    kind, _, name = str(context.get("author") or event.created_by or "system").partition(":")
    return VersionOut(
        version=event.version,
        who=AuthorOut(kind=kind, name=name),
        when=event.pgh_created_at,
        what=_what(event),
        reason=str(context.get("reason") or ""),
        key=event.key,
        content=event.content,
        tags=event.tags,
        importance=event.importance,
        pinned=event.pinned,
        owner=event.owner.handle if event.owner is not None else None,
        expires_at=event.expires_at,
    )


def _what(event: Any) -> Any:
    if event.pgh_label == "changed" and event.deleted_at is not None:
        return "deleted"
    if event.pgh_label == "changed" and event.withdrawn_at is not None:
        return "withdrawn"
    if event.pgh_label == "changed" and event.merged_into_id is not None:
        return "merged"
    return event.pgh_label
