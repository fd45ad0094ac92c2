"""Memories of a space or an agent as lines of JSON: with their sources and history, without vectors, one at a time.

The first line names the format. Every other line is one memory, survivors of merges before what went into them, so that
whoever reads line by line has met what a line names. Owners are named by their handles (T1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, TypeVar
from uuid import UUID

from django.db import connection, transaction

from agentmemory.models import Agent, Consolidation, Memory, MemoryEvent, MemorySource, Space
from agentmemory.querysets.memories import MemoryQuerySet

FORMAT = "agentmemory.memories"
VERSION = 1
AT_ONCE = 200

STATE = (
    "origin",
    "key",
    "content",
    "tags",
    "context",
    "importance",
    "pinned",
    "version",
    "created_by",
    "created_at",
    "updated_at",
    "expires_at",
    "deleted_at",
    "withdrawn_at",
    "withdrawn_by",
    "withdrawn_reason",
    "edited_by",
)
"""Columns of a memory, and of each of its versions, as they are."""

SOURCE = ("session_name", "uid", "seq", "quote", "verified", "version", "came_with", "gone_at", "created_at")
CONSOLIDATION = ("kind", "why", "author", "reason", "tags_added", "at", "undone_at", "undone_by", "undone_reason")

Item = TypeVar("Item")
Line = dict[str, Any]


def lines(*, space: Space, agent: Agent | None = None) -> Iterator[Line]:
    """The export, line by line, as it all was at one moment. It holds a read transaction while it is taken."""
    with transaction.atomic():
        # Within another transaction the moment is that one's.
        if not connection.savepoint_ids:
            _at_one_moment()
        yield {"format": FORMAT, "version": VERSION, "space": space.slug, "agent": agent.handle if agent else None}
        rows = Memory.objects.filter(space=space)
        if agent is not None:
            rows = rows.filter(owner=agent)
        handles = dict(Agent.objects.filter(space=space).values_list("pk", "handle"))
        for part in _in_order(rows):
            for piece in _pieces(part.defer("search").iterator(chunk_size=AT_ONCE)):
                yield from _told(piece, handles, agent)


def _at_one_moment() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")


def _in_order(rows: MemoryQuerySet) -> Iterator[MemoryQuerySet]:
    """Those that stand by themselves, those that repeat a curated one, then merged ones by the length of their way."""
    rows = rows.order_by("pk")
    alone = rows.filter(merged_into__isnull=True)
    yield alone.filter(repeats__isnull=True)
    yield alone.filter(repeats__isnull=False)
    way = "merged_into"
    while rows.filter(**{f"{way}__isnull": False}).exists():
        yield rows.filter(**{f"{way}__isnull": False, f"{way}__merged_into__isnull": True})
        way += "__merged_into"


def _pieces(items: Iterable[Item]) -> Iterator[list[Item]]:
    rest = iter(items)
    while piece := list(islice(rest, AT_ONCE)):
        yield piece


def _told(memories: Sequence[Memory], handles: dict[int, str], agent: Agent | None) -> Iterator[Line]:
    ids = [memory.pk for memory in memories]
    sources = _by(MemorySource.objects.filter(memory__in=ids).order_by("memory", "version", "session_name", "uid"))
    events = _by(MemoryEvent.objects.filter(pgh_obj_id__in=ids).order_by("pgh_id"), "pgh_obj_id")
    merges = _by(Consolidation.objects.filter(memory__in=ids).order_by("pk"))
    used = {row.pk: row for row in Memory.objects.filter(pk__in=ids).with_use().defer("search")}
    for memory in memories:
        use: Any = used[memory.pk]
        yield {
            "id": str(memory.pk),
            "owner": _owner(memory.owner_id, handles),
            **_fields(memory, STATE),
            "merged_into": _plain(memory.merged_into_id),
            "repeats": _plain(memory.repeats_id) if agent is None else None,
            "used": use.access_count,
            "last_used_at": _plain(use.last_accessed_at),
            "sources": [_fields(row, SOURCE) for row in sources.get(memory.pk, ())],
            "history": [
                _version(row, handles) for row in events.get(memory.pk, ()) if row.owner_id in {None, *handles}
            ],
            "consolidations": [
                {**_fields(row, CONSOLIDATION), "other": _plain(row.other_id)} for row in merges.get(memory.pk, ())
            ],
        }


def _version(event: Any, handles: dict[int, str]) -> Line:
    context = event.pgh_context or {}
    return {
        "label": event.pgh_label,
        "at": _plain(event.pgh_created_at),
        "author": context.get("author"),
        "why": context.get("reason"),
        "owner": _owner(event.owner_id, handles),
        **_fields(event, STATE),
        "merged_into": _plain(event.merged_into_id),
        "repeats": _plain(event.repeats_id),
    }


def _owner(owner_id: int | None, handles: dict[int, str]) -> str | None:
    return None if owner_id is None else handles[owner_id]


def _by(rows: Iterable[Any], field: str = "memory_id") -> dict[UUID, list[Any]]:
    found: dict[UUID, list[Any]] = {}
    for row in rows:
        found.setdefault(getattr(row, field), []).append(row)
    return found


def _fields(row: Any, names: Sequence[str]) -> Line:
    return {name: _plain(getattr(row, name)) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return str(value) if isinstance(value, UUID) else value
