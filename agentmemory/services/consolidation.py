"""Consolidation (M9): what says the same is merged or linked, what nobody uses is forgotten; each of it is reversible.

A plan names what would be done and why, without doing it; carrying it out does exactly that, each item in a transaction
of its own, and leaves alone what has changed meanwhile. What was looked at is noted by its version, so that a run costs
what has changed since the last one, can be stopped anywhere, and two at once do no harm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from agentmemory import authorship
from agentmemory.authorship import Author
from agentmemory.errors import AgentMemoryError, NotFound, VersionMoved
from agentmemory.models import (
    Agent,
    Consolidation,
    ConsolidationLook,
    Memory,
    MemoryAccess,
    MemorySource,
    MemoryUsage,
    Space,
)
from agentmemory.querysets.memories import MemoryQuerySet
from agentmemory.services import activity, curation, memories, merging, neighbours, patience
from agentmemory.services.patience import TookTooLong

AUTHOR = Author(kind="system", name="consolidation")
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


@dataclass(kw_only=True)
class Report:
    """What was done, by kind, and what was left alone since it had changed."""

    merge: int = 0
    link: int = 0
    forget: int = 0
    skipped: int = 0

    def __str__(self) -> str:
        return f"{self.merge} merged, {self.link} linked, {self.forget} forgotten, {self.skipped} had changed"


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
        with nullcontext() if seconds is None else patience.at_most(seconds / 2):
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
            with nullcontext() if seconds is None else patience.at_most(seconds / 4):
                found = list(_of(memory, gone)) if memory.pk not in gone else []
        except TookTooLong:
            made.next = next(reversed(made.looked), after)
            made.slow = True
            break
        made.looked[memory.pk] = memory.version
        made.items += found
        gone |= {item.memory_id for item in found}
    return made


def run(*, plan: Plan, author: Author = AUTHOR, reason: str = "") -> Report:
    """Do what a plan says and nothing else. What has changed since is left alone, and looked at again another time."""
    report = Report()
    spaces: dict[int, int] = {}
    for item in plan.items:
        try:
            space_id = _carry_out(item, author, reason)
        except AgentMemoryError:
            report.skipped += 1
        else:
            setattr(report, item.kind, getattr(report, item.kind) + 1)
            spaces[space_id] = spaces.get(space_id, 0) + 1
    _note_looks(plan)
    if author.kind == "operator":
        for space in Space.objects.filter(pk__in=spaces):
            detail = {"done": spaces[space.pk]}
            activity.record("consolidate", who=str(author), target=space, reason=reason, space=space, detail=detail)
    return report


def run_all(
    *,
    space: Space | None = None,
    agent: Agent | None = None,
    afresh: bool = False,
    seconds: float | None = None,
    author: Author = AUTHOR,
    reason: str = "",
    on_plan: Callable[[Plan], None] | None = None,
) -> Report:
    """Plan and carry out until there is nothing left, or for so many seconds: what is left waits for the next run."""
    total, until = Report(), None if seconds is None else time.monotonic() + seconds
    after: UUID | None = None
    while True:
        made = plan(space=space, agent=agent, after=after, afresh=afresh)
        report = run(plan=made, author=author, reason=reason)
        for name, count in asdict(report).items():
            setattr(total, name, getattr(total, name) + count)
        if on_plan is not None:
            on_plan(made)
        after = made.next
        if after is None or (until is not None and time.monotonic() > until):
            return total


def daily() -> str:
    """The regular run, within half of a task's time, and what it did in one line."""
    gathered = gather_sources()
    report = run_all(seconds=settings.AGENTMEMORY_TASK_TIMEOUT / 2)
    return f"{report}; {gathered} sources followed their memory"


def gather_sources() -> int:
    """Give survivors what their merged memories were given since: a pass may have added to one as it was merged."""
    late = MemorySource.objects.filter(
        ~Exists(MemorySource.objects.filter(memory=OuterRef("memory__merged_into"), came_with=OuterRef("memory"))),
        memory__merged_into__isnull=False,
        gone_at__isnull=True,
    )
    known = MemorySource.objects.filter(
        memory=OuterRef("memory__merged_into"), session_name=OuterRef("session_name"), uid=OuterRef("uid")
    )
    waiting = late.exclude(Exists(known)).values_list("memory", flat=True).distinct()
    rows = Memory.objects.filter(pk__in=list(waiting[:FORGOTTEN])).select_related("merged_into")
    for memory in rows:
        if memory.merged_into is not None:
            with transaction.atomic():
                merging.copy_sources(memory, memory.merged_into)
    return len(rows)


@transaction.atomic
def undo(*, consolidation_id: int, author: Author, reason: str) -> Memory:
    """Undo one thing that consolidation did. It does not do it again. Raises `NotFound`, `Invalid`."""
    row = Consolidation.objects.select_for_update(of=("self",)).filter(pk=consolidation_id).first()
    if row is None:
        raise NotFound("There is no such merge.")
    if row.kind == Consolidation.Kind.MERGE:
        return merging.unmerge(memory_id=row.memory_id, author=author, reason=reason)
    if row.kind == Consolidation.Kind.LINK:
        return merging.unlink(memory_id=row.memory_id, author=author, reason=reason)
    row.undone_at, row.undone_by, row.undone_reason = timezone.now(), str(author)[:300], reason[:500]
    row.save(update_fields=["undone_at", "undone_by", "undone_reason"])
    return curation.reinstate(memory_id=row.memory_id, author=author, reason=reason)


def _names(versions: dict[UUID, int]) -> dict[str, int]:
    return {str(pk): version for pk, version in versions.items()}


def _ids(versions: dict[str, int]) -> dict[UUID, int]:
    return {UUID(pk): version for pk, version in versions.items()}


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
    before = _unused_since()
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
        for memory in _unused(scope, before).order_by("updated_at").defer("search", "context")[:FORGOTTEN]
    ]


def _unused_since() -> datetime | None:
    """From when on a use counts; None: nothing is ever forgotten by rule."""
    seconds = settings.AGENTMEMORY_FORGET_AFTER
    return None if seconds is None else timezone.now() - timedelta(seconds=seconds)


def _unused(rows: MemoryQuerySet, before: datetime) -> MemoryQuerySet:
    """A pin, an edit by hand, and a person's word that it is to stay keep a memory."""
    return rows.filter(
        ~Exists(MemoryUsage.objects.filter(memory=OuterRef("pk"), last_at__gte=before)),
        ~Exists(MemoryAccess.objects.filter(memory=OuterRef("pk"), at__gte=before)),
        ~Exists(Consolidation.objects.filter(memory=OuterRef("pk"), kind="forget", undone_at__isnull=False)),
        origin=Memory.Origin.DISTILLED,
        pinned=False,
        edited_by="",
        updated_at__lt=before,
    )


def _carry_out(item: Item, author: Author, reason: str) -> int:
    """Do it, and say in which space. Raises `AgentMemoryError` where it no longer fits."""
    if item.other_id is None:
        return _forget(item, author, reason)
    asked: Any = {"author": author, "why": item.why, "reason": reason, "expected": item.versions}
    if item.kind == "merge":
        return merging.merge(memory_id=item.memory_id, into_id=item.other_id, **asked).space_id
    return merging.link(memory_id=item.memory_id, curated_id=item.other_id, **asked).space_id


@transaction.atomic
def _forget(item: Item, author: Author, reason: str) -> int:
    with authorship.acting(AUTHOR, reason=reason or item.why):
        rows = Memory.objects.live().select_for_update(of=("self",), no_key=True).filter(pk=item.memory_id)
        memory = rows.filter(version=item.versions[item.memory_id]).first()
        before = _unused_since()
        if memory is None or before is None or not _unused(rows, before).exists():
            raise VersionMoved("The memory was changed or used since this was planned.")
        memory.withdrawn_at, memory.withdrawn_by, memory.withdrawn_reason = timezone.now(), str(AUTHOR), item.why
        memories.save_version(memory, ["withdrawn_at", "withdrawn_by", "withdrawn_reason"])
    Consolidation.objects.create(
        space_id=memory.space_id, kind="forget", memory=memory, why=item.why, author=str(author), reason=reason[:500]
    )
    return memory.space_id


def _note_looks(plan: Plan) -> None:
    ConsolidationLook.objects.bulk_create(
        [ConsolidationLook(memory_id=pk, version=version) for pk, version in sorted(plan.looked.items())],
        update_conflicts=True,
        unique_fields=["memory"],
        update_fields=["version"],
    )
