"""What distilling again brought: what is added, changed, and no longer confirmed (D24). Curated rows are left alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from agentmemory.models import Activity, Memory, MemoryEvent, MemorySource
from agentmemory.services import activity
from distillation.models import Cursor, DistillationPass
from distillation.services import operations


@dataclass(kw_only=True)
class Report:
    """Of the stretch that was distilled again: memories added, changed, confirmed, and those nothing came up for.

    The last ones stay as they are; whoever reads the report decides whether to withdraw them. `before` holds what the
    changed ones said until then.
    """

    added: list[Memory] = field(default_factory=list)
    changed: list[Memory] = field(default_factory=list)
    confirmed: list[Memory] = field(default_factory=list)
    not_confirmed: list[Memory] = field(default_factory=list)
    before: dict[UUID, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Again:
    """The newest order to distil a session again: messages after `start`, up to `upto`, of which `reached` is done."""

    order: Activity
    start: int
    upto: int
    reached: int
    report: Report

    @property
    def done(self) -> bool:
        return self.reached >= self.upto


def newest(cursor: Cursor) -> Again | None:
    """What the newest order to distil a session again has brought so far; nothing where there was none."""
    order = activity.newest(operations.DISTIL_AGAIN, target=cursor)
    # Orders of earlier releases do not tell after which pass they came.
    if order is None or "after_pass" not in order.detail:
        return None
    start, upto = int(order.detail["to"]), int(order.detail["position"])
    found = report(cursor=cursor, first_pass=int(order.detail["after_pass"]) + 1, upto=upto)
    return Again(order=order, start=start, upto=upto, reached=min(cursor.position, upto), report=found)


def report(*, cursor: Cursor, first_pass: int, upto: int | None = None) -> Report:
    """Compare what passes from `first_pass` (its id) on wrote with what rested on the same messages before.

    With `upto`, passes that begin behind that message are left out: what they read was new to everybody.
    """
    passes = DistillationPass.objects.filter(cursor=cursor, pk__gte=first_pass, outcome__in=["applied", "empty"])
    rows = list((passes if upto is None else passes.filter(start__lt=upto)).defer("answer").order_by("pk"))
    written = [entry for row in rows for entry in row.written]
    seqs = {seq for row in rows for seq in row.shown}
    memories = Memory.objects.in_bulk({entry["memory"] for entry in written})
    result = Report()
    for group, action in ((result.added, "created"), (result.changed, "updated"), (result.confirmed, "known")):
        group.extend(_distinct(memories, (entry for entry in written if entry["action"] == action)))
    result.not_confirmed = _not_confirmed(cursor, seqs, first_pass, touched={entry["memory"] for entry in written})
    result.before = _before(entry for entry in written if entry["action"] == "updated")
    return result


def _distinct(memories: dict[Any, Memory], entries: Iterable[dict[str, Any]]) -> list[Memory]:
    found = {entry["memory"]: None for entry in entries}
    by_text = {str(pk): memory for pk, memory in memories.items()}
    return [by_text[pk] for pk in found if pk in by_text]


def _before(updates: Iterable[dict[str, Any]]) -> dict[UUID, str]:
    """What each memory said before the first of its updates."""
    first: dict[str, int] = {}
    for entry in updates:
        first[entry["memory"]] = min(entry["version"], first.get(entry["memory"], entry["version"]))
    events = MemoryEvent.objects.filter(pgh_obj_id__in=first, version__lt=max(first.values(), default=0))
    rows = events.order_by("pgh_id").values_list("pgh_obj_id", "version", "content")
    return {memory: content for memory, version, content in rows if version == first[str(memory)] - 1}


def _not_confirmed(cursor: Cursor, seqs: set[int], first_pass: int, *, touched: set[str]) -> list[Memory]:
    """Memories that came from these messages in earlier passes, and from no other message, untouched since."""
    before = MemorySource.objects.filter(session=cursor.session, seq__in=seqs, pass_id__lt=first_pass)
    rows = Memory.objects.kept().filter(
        pk__in=before.values("memory"),
        origin=Memory.Origin.DISTILLED,
        withdrawn_at__isnull=True,
        merged_into__isnull=True,
    )
    elsewhere = MemorySource.objects.filter(memory__in=rows, gone_at__isnull=True).exclude(
        session=cursor.session, seq__in=seqs
    )
    kept = set(elsewhere.values_list("memory_id", flat=True))
    return [memory for memory in rows.order_by("key") if memory.pk not in kept and str(memory.pk) not in touched]
