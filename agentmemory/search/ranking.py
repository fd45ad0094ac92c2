"""Search as agents ask for it: what the caller may see, ranked by every leg there is (M7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agentmemory.callers import Caller, Scope
from agentmemory.models import Agent, Memory
from agentmemory.querysets.memories import MemoryQuerySet
from agentmemory.search import lexical, spelling
from agentmemory.services import memories


@dataclass(frozen=True)
class Found:
    """A memory that a search found, with its use before this search. `score` is from 0 to 1.

    `matched` names the legs that found it. `explain` says how, by leg, where it was asked for.
    """

    memory: Memory
    score: float
    matched: tuple[str, ...]
    explain: dict[str, Any] | None = None


@dataclass(frozen=True)
class Results:
    """What a search found, the best first; `pending` rows in view have no vector yet (0 without the vector leg)."""

    items: list[Found] = field(default_factory=list)
    pending: int = 0


def search(
    *,
    caller: Caller,
    q: str,
    scope: Scope | None = None,
    origin: str | None = None,
    tag: str | None = None,
    owner: Agent | None = None,
    limit: int = 10,
    explain: bool = False,
    count_access: bool = True,
) -> Results:
    """The memories in the caller's view that have most to do with `q`; none, where nothing matches.

    Every filter narrows the view before anything is ranked. What is returned counts as used, unless the one who looks
    is no agent (`count_access`, M6).
    """
    view = memories.listing(caller=caller, scope=scope, origin=origin, tag=tag, owner=owner).searchable()
    hits, asked = _by_text(view, q, limit)
    rows = view.in_bulk([hit.memory_id for hit in hits])
    items = [
        Found(rows[hit.memory_id], hit.score, ("text",), _explanation(hit, asked) if explain else None)
        for hit in hits
        if hit.memory_id in rows
    ]
    if count_access:
        memories.count_access([item.memory.pk for item in items])
    return Results(items)


def _by_text(view: MemoryQuerySet, q: str, limit: int) -> tuple[Sequence[lexical.Hit], str]:
    """What the words of `q` find, and the words that found it: typing errors are forgiven when nothing else matches."""
    if hits := lexical.rank(view, q, limit=limit):
        return hits, q
    corrected = spelling.corrected(view, q)
    return (lexical.rank(view, corrected, limit=limit) if corrected else []), corrected


def _explanation(hit: lexical.Hit, asked: str) -> dict[str, Any]:
    return {"text": {"score": hit.score, "rank": hit.rank, "words": list(hit.words), "asked": asked}}
