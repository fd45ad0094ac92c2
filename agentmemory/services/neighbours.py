"""Memories that say the same as one, found through the index of words and then compared (M9): never all pairs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import Q

from agentmemory import likeness
from agentmemory.models import Memory
from agentmemory.querysets.memories import MemoryQuerySet
from agentmemory.search import lexical
from agentmemory.services import merging

NEAREST = 8
"""How many of those that share most words are compared."""


def alike(memory: Memory) -> list[Memory]:
    """Distilled memories of the same owner that may be merged with this one, the nearest first.

    One that a person has edited or withdrawn, that ends one day, or that was kept apart from it, is none of them.
    """
    if not _mergeable(memory):
        return []
    found = _nearest(_distilled().filter(space=memory.space_id, owner=memory.owner_id), memory)
    return [other for other in found if _mergeable(other) and not (other.pinned and memory.pinned)]


def repeated_by(memory: Memory) -> Memory | None:
    """The curated memory of its owner, or of everyone, that a distilled one repeats."""
    curated = Memory.objects.live().filter(space=memory.space_id, origin=Memory.Origin.CURATED, expires_at__isnull=True)
    in_view = curated.filter(Q(owner__isnull=True) | Q(owner=memory.owner_id))
    return next(iter(_nearest(in_view, memory)), None)


def repeating(curated: Memory) -> list[Memory]:
    """Distilled memories that repeat a curated one: of its owner, or of everyone where it is shared."""
    if curated.expires_at is not None:
        return []
    rows = _distilled().filter(space=curated.space_id)
    return _nearest(rows if curated.owner_id is None else rows.filter(owner=curated.owner_id), curated)


def in_order(first: Memory, second: Memory) -> tuple[Memory, Memory]:
    """Of two to be merged, the one that goes and the one that stays: what is pinned, used more, older."""
    rows: list[Any] = list(Memory.objects.filter(pk__in=[first.pk, second.pk]).with_use())
    used = {row.pk: row.access_count for row in rows}
    stays, goes = sorted((first, second), key=lambda row: (not row.pinned, -used[row.pk], row.created_at, row.pk))
    return goes, stays


def words_in_common(first: Memory, second: Memory) -> float:
    """The share of the words of both that both have."""
    one, other = likeness.words(first.content), likeness.words(second.content)
    return len(one & other) / len(one | other) if one | other else 1.0


def _distilled() -> MemoryQuerySet:
    return Memory.objects.searchable().filter(origin=Memory.Origin.DISTILLED)


def _mergeable(memory: Memory) -> bool:
    return not memory.edited_by and memory.expires_at is None


def _nearest(rows: MemoryQuerySet, memory: Memory) -> list[Memory]:
    """Those of the rows that say the same, in the order of the words they share, without what was kept apart."""
    others = rows.exclude(pk=memory.pk)
    hits = [hit.memory_id for hit in lexical.rank(others, memory.content, limit=NEAREST)]
    found: dict[UUID, Memory] = others.select_related("owner").defer("search", "context").in_bulk(hits)
    same = [found[pk] for pk in hits if pk in found and likeness.near_duplicate(found[pk].content, memory.content)]
    apart = merging.kept_apart(memory.pk, [other.pk for other in same]) if same else set()
    return [other for other in same if other.pk not in apart]
