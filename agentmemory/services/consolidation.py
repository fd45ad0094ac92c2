"""Consolidation (M9): what says the same is merged or linked, what nobody uses is forgotten; each of it is reversible.

A plan names what would be done and why, without doing it; carrying it out does exactly that, each item in a transaction
of its own, and leaves alone what has changed meanwhile. What was looked at is noted by its version, so that a run costs
what has changed since the last one, can be stopped anywhere, and two at once do no harm.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from agentmemory.authorship import CONSOLIDATION, Author
from agentmemory.errors import AgentMemoryError, NotFound
from agentmemory.models import Agent, Consolidation, ConsolidationLook, Memory, MemorySource, Space
from agentmemory.services import activity, consolidation_plans, curation, forgetting, merging
from agentmemory.services.consolidation_plans import Item, Plan

GATHERED = 1_000
"""Merged memories whose late sources one run carries over."""


@dataclass(kw_only=True)
class Report:
    """What was done, by kind, and what was left alone since it had changed."""

    merge: int = 0
    link: int = 0
    forget: int = 0
    skipped: int = 0

    def __str__(self) -> str:
        return f"{self.merge} merged, {self.link} linked, {self.forget} forgotten, {self.skipped} had changed"


def run(*, plan: Plan, author: Author = CONSOLIDATION, reason: str = "") -> Report:
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
    author: Author = CONSOLIDATION,
    reason: str = "",
    on_plan: Callable[[Plan], None] | None = None,
) -> Report:
    """Plan and carry out until there is nothing left, or for so many seconds: what is left waits for the next run."""
    total, until = Report(), None if seconds is None else time.monotonic() + seconds
    after: UUID | None = None
    while True:
        made = consolidation_plans.plan(space=space, agent=agent, after=after, afresh=afresh)
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
    rows = Memory.objects.filter(pk__in=list(waiting[:GATHERED])).select_related("merged_into")
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


def _carry_out(item: Item, author: Author, reason: str) -> int:
    """Do it, and say in which space. Raises `AgentMemoryError` where it no longer fits."""
    if item.other_id is None:
        version = item.versions[item.memory_id]
        given: Any = {"memory_id": item.memory_id, "version": version, "why": item.why}
        return forgetting.forget(**given, author=author, reason=reason).space_id
    asked: Any = {"author": author, "why": item.why, "reason": reason, "expected": item.versions}
    if item.kind == "merge":
        return merging.merge(memory_id=item.memory_id, into_id=item.other_id, **asked).space_id
    return merging.link(memory_id=item.memory_id, curated_id=item.other_id, **asked).space_id


def _note_looks(plan: Plan) -> None:
    ConsolidationLook.objects.bulk_create(
        [ConsolidationLook(memory_id=pk, version=version) for pk, version in sorted(plan.looked.items())],
        update_conflicts=True,
        unique_fields=["memory"],
        update_fields=["version"],
    )
