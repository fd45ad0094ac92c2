"""What distilling again brought: what is added, changed, and no longer confirmed (D24). Curated rows are left alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from agentmemory.models import Memory, MemorySource
from distillation.models import Cursor, DistillationPass


@dataclass(kw_only=True)
class Report:
    """Of the stretch that was distilled again: memories added, changed, confirmed, and those nothing came up for.

    The last ones stay as they are; whoever reads the report decides whether to withdraw them.
    """

    added: list[Memory] = field(default_factory=list)
    changed: list[Memory] = field(default_factory=list)
    confirmed: list[Memory] = field(default_factory=list)
    not_confirmed: list[Memory] = field(default_factory=list)


def report(*, cursor: Cursor, first_pass: int) -> Report:
    """Compare what passes from `first_pass` (its id) on wrote with what rested on the same messages before."""
    passes = DistillationPass.objects.filter(cursor=cursor, pk__gte=first_pass, outcome__in=["applied", "empty"])
    rows = list(passes.order_by("pk"))
    written = [entry for row in rows for entry in row.written]
    seqs = {seq for row in rows for seq in row.shown}
    memories = Memory.objects.in_bulk({entry["memory"] for entry in written})
    result = Report()
    for group, action in ((result.added, "created"), (result.changed, "updated"), (result.confirmed, "known")):
        group.extend(_distinct(memories, (entry for entry in written if entry["action"] == action)))
    result.not_confirmed = _not_confirmed(cursor, seqs, first_pass, touched={entry["memory"] for entry in written})
    return result


def _distinct(memories: dict[Any, Memory], entries: Iterable[dict[str, Any]]) -> list[Memory]:
    found = {entry["memory"]: None for entry in entries}
    by_text = {str(pk): memory for pk, memory in memories.items()}
    return [by_text[pk] for pk in found if pk in by_text]


def _not_confirmed(cursor: Cursor, seqs: set[int], first_pass: int, *, touched: set[str]) -> list[Memory]:
    """Memories that came from these messages in earlier passes, and from no other message, untouched since."""
    before = MemorySource.objects.filter(session=cursor.session, seq__in=seqs, pass_id__lt=first_pass)
    rows = Memory.objects.kept().filter(
        pk__in=before.values("memory"), origin=Memory.Origin.DISTILLED, withdrawn_at__isnull=True
    )
    elsewhere = MemorySource.objects.filter(memory__in=rows, gone_at__isnull=True).exclude(
        session=cursor.session, seq__in=seqs
    )
    kept = set(elsewhere.values_list("memory_id", flat=True))
    return [memory for memory in rows.order_by("key") if memory.pk not in kept and str(memory.pk) not in touched]
