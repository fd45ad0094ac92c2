"""Search as agents ask for it: what the caller may see, ranked by every leg there is (M7)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agentmemory.callers import Caller, Scope
from agentmemory.models import Agent, Memory
from agentmemory.search import hybrid, vector_tables
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
    hits = hybrid.find(view, vector_tables.MEMORIES, q, limit=limit, newest="updated_at")
    rows = view.in_bulk([hit.pk for hit in hits.items])
    items = [
        Found(rows[hit.pk], hit.score, hit.matched, hit.explained() if explain else None)
        for hit in hits.items
        if hit.pk in rows
    ]
    if count_access:
        memories.count_access([item.memory.pk for item in items])
    return Results(items, hits.pending)
