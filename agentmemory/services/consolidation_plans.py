"""Plans of consolidation (M9): what would be done, and why, without doing it.

What says the same is found by its neighbours. What was looked at is noted by its version, so that a plan costs what has
changed since the last one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef

from agentmemory.models import Agent, ConsolidationLook, Memory, Space
from agentmemory.querysets.memories import MemoryQuerySet
from agentmemory.services import forgetting, neighbours, patience
from agentmemory.services.patience import TookTooLong

LOOKS = 200
"""Memories whose neighbours one plan looks at."""
FORGOTTEN = 1_000
"""Memories that one plan forgets."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """One thing that would be done to `memory_id`: `kind` is `merge` (into `other_id`), `link` (to it) or `forget`.

    `versions` are those that the two had when it was planned.
    """

    kind: str
    memory_id: UUID
    key: str
    owner: str
    why: str
    versions: dict[UUID, int]
    other_id: UUID | None = None
    other_key: str = ""

    def as_json(self) -> dict[str, Any]:
        """What carrying it out needs: no key, and nobody's name."""
        other = str(self.other_id) if self.other_id else None
        told = {"kind": self.kind, "memory": str(self.memory_id), "other": other, "why": self.why}
        return {**told, "versions": _names(self.versions)}

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> Item:
        """The item that `as_json` gave."""
        other = UUID(value["other"]) if value["other"] else None
        rest = {"key": "", "owner": "", "why": value["why"], "versions": _ids(value["versions"])}
        return cls(kind=value["kind"], memory_id=UUID(value["memory"]), other_id=other, **rest)


@dataclass(kw_only=True)
class Plan:
    """What would be done, and what was looked at for it. `next` is where the next plan begins; None: this is all.

    `slow`: it ended at a memory that takes longer to look at than there was time.
    """

    items: list[Item] = field(default_factory=list)
    looked: dict[UUID, int] = field(default_factory=dict)
    next: UUID | None = None
    slow: bool = False

    def as_json(self) -> dict[str, Any]:
        """The plan as JSON can carry it, to be carried out later."""
        return {"items": [item.as_json() for item in self.items], "looked": _names(self.looked)}

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> Plan:
        """The plan that `as_json` gave."""
        return cls(items=[Item.of_json(each) for each in value["items"]], looked=_ids(value["looked"]))


def plan(
    *,
    space: Space | None = None,
    agent: Agent | None = None,
    after: UUID | None = None,
    afresh: bool = False,
    seconds: float | None = None,
) -> Plan:
    """What consolidation would do next, of a space or an agent where one is named. It changes nothing.

    `afresh` looks again at what has not changed. A long way has several plans: each begins `after` the last one, and
    ends after so many memories, or after `seconds`; no statement takes longer than half of that.
    """
    until = None if seconds is None else time.monotonic() + seconds
    scope = _within(space, agent)
    made = Plan()
    if after is None:
        made.items += _forgettable(scope)
    due = _due(scope, afresh=afresh)
    try:
        with _at_most(seconds, part=2):
            ordered = (due.filter(pk__gt=after) if after else due).order_by("pk")
            rows = list(ordered.defer("search", "context")[: LOOKS + 1])
    except TookTooLong:
        made.slow = True
        return made
    made.next = rows[LOOKS - 1].pk if len(rows) > LOOKS else None
    gone = {item.memory_id for item in made.items}
    for memory in rows[:LOOKS]:
        if made.looked and until is not None and time.monotonic() > until:
            made.next = next(reversed(made.looked))
            break
        try:
            with _at_most(seconds, part=4):
                found = list(_of(memory, gone)) if memory.pk not in gone else []
        except TookTooLong:
            made.next = next(reversed(made.looked), after)
            made.slow = True
            break
        made.looked[memory.pk] = memory.version
        made.items += found
        gone |= {item.memory_id for item in found}
    return made


def _at_most(seconds: float | None, *, part: int) -> AbstractContextManager[None]:
    return nullcontext() if seconds is None else patience.at_most(seconds / part)


def _within(space: Space | None, agent: Agent | None) -> MemoryQuerySet:
    """What stands in spaces and with agents that are not archived (T4)."""
    # As what is left out, which is little: joined, the planner expects next to nothing to be left, and sorts it all.
    rows = Memory.objects.live().select_related("owner")
    rows = rows.exclude(space__in=Space.objects.filter(archived_at__isnull=False).values("pk"))
    rows = rows.exclude(owner__in=Agent.objects.filter(archived_at__isnull=False).values("pk"))
    if space is not None:
        rows = rows.filter(space=space)
    return rows if agent is None else rows.filter(space=agent.space_id, owner=agent)


def _due(scope: MemoryQuerySet, *, afresh: bool) -> MemoryQuerySet:
    """What was not looked at since it last changed."""
    if afresh:
        return scope
    looked = ConsolidationLook.objects.filter(memory=OuterRef("pk"), version=OuterRef("version"))
    return scope.filter(~Exists(looked))


def _of(memory: Memory, gone: set[UUID]) -> Iterator[Item]:
    """What a memory and its neighbours give cause for: a curated one may be repeated by several."""
    if memory.origin == Memory.Origin.CURATED:
        for other in neighbours.repeating(memory):
            if other.pk not in gone:
                yield _item("link", other, memory)
        return
    if memory.repeats_id is not None:
        return
    curated = neighbours.repeated_by(memory)
    if curated is not None:
        yield _item("link", memory, curated)
        return
    for other in neighbours.alike(memory):
        if other.pk not in gone:
            vanishing, survivor = neighbours.in_order(memory, other)
            yield _item("merge", vanishing, survivor)
            if vanishing.pk == memory.pk:
                return


def _item(kind: str, memory: Memory, other: Memory) -> Item:
    shared = neighbours.words_in_common(memory, other)
    return Item(
        kind=kind,
        memory_id=memory.pk,
        key=memory.key,
        owner=memory.owner.handle if memory.owner is not None else "",
        why=f"{shared:.0%} of their words are the same",
        versions={memory.pk: memory.version, other.pk: other.version},
        other_id=other.pk,
        other_key=other.key,
    )


def _forgettable(scope: MemoryQuerySet) -> list[Item]:
    """Distilled memories that nobody has used or written for `AGENTMEMORY_FORGET_AFTER` seconds, where that is set."""
    before = forgetting.unused_since()
    if before is None:
        return []
    return [
        Item(
            kind="forget",
            memory_id=memory.pk,
            key=memory.key,
            owner=memory.owner.handle if memory.owner is not None else "",
            why=f"unused since {before:%Y-%m-%d}",
            versions={memory.pk: memory.version},
        )
        for memory in forgetting.unused(scope, before).order_by("updated_at").defer("search", "context")[:FORGOTTEN]
    ]


def _names(versions: dict[UUID, int]) -> dict[str, int]:
    return {str(pk): version for pk, version in versions.items()}


def _ids(versions: dict[str, int]) -> dict[UUID, int]:
    return {UUID(pk): version for pk, version in versions.items()}
