"""What becomes of memories when messages they rest on are taken back (D23): one service, one rule.

A memory's current content came with the newest version that has sources. Where one of those still stands, the memory
stays. Where none does, the newest earlier version with a source that stands returns; without one, the memory is
withdrawn: kept in its history, out of search, context and lists, shown to operators with the reason. What replaces a
message is a new one ahead of the position, so that it is distilled like any other; when that one is rewound or deleted,
what it had replaced stands again, and what was withdrawn for it comes back.

A memory that was merged into another keeps its own sources, and the other has copies of them: each is decided by its
own, and a merge that is undone later finds both as they ought to be (M9).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models.functions import Collate
from django.dispatch import receiver
from django.utils import timezone

from agentmemory import authorship, signals
from agentmemory.authorship import Author
from agentmemory.models import Memory, MemoryEvent, MemorySource, Session
from agentmemory.querysets.memories import MemoryQuerySet
from agentmemory.services import memories
from distillation.services import contexts

AUTHOR = Author(kind="system", name="reconciliation")
_CONTENT = ("content", "tags", "context")


@dataclass(frozen=True, kw_only=True)
class Change:
    """What happens, or would happen, to one memory."""

    memory: Memory
    action: str
    """`stays`, `returns` (to `version`), or `withdrawn`."""
    version: int | None = None


def plan(*, session: Session, uids: Sequence[str]) -> list[Change]:
    """What taking these messages back would do, without doing it."""
    return _plan(session, uids, list(_touched(session, uids)))


def _plan(session: Session, uids: Sequence[str], touched: Sequence[Memory]) -> list[Change]:
    sources = _sources([memory.pk for memory in touched])
    gone = set(_ids(session, uids))
    return [_decide(memory, sources[memory.pk], gone) for memory in touched]


@receiver(signals.messages_gone)
def reconcile(sender: object, *, session: Session, uids: Sequence[str], reason: str, **_: Any) -> None:
    """Take the messages from under the memories that rest on them, in the transaction that takes them back."""
    resting = set(_touched(session, uids).values_list("pk", flat=True))
    around = contexts.beside(session, uids)
    locked = list(_automatic(resting | around).select_for_update(of=("self",), no_key=True))
    changes = _plan(session, uids, [memory for memory in locked if memory.pk in resting])
    MemorySource.objects.filter(pk__in=_ids(session, uids)).update(gone_at=timezone.now())
    with authorship.acting(AUTHOR, reason=reason):
        for change in changes:
            _carry_out(change, reason)
        for memory in locked:
            if memory.withdrawn_at is None:
                contexts.forget(memory, session=session, uids=uids)


@receiver(signals.messages_returned)
def restore(sender: object, *, session: Session, uids: Sequence[str], **_: Any) -> None:
    """Bring back what was withdrawn here for want of these messages, now that they stand again."""
    gone = MemorySource.objects.filter(space_id=session.space_id, session=session, uid__in=uids, gone_at__isnull=False)
    again = dict(gone.values_list("pk", "memory"))
    withdrawn = _automatic(set(again.values())).filter(withdrawn_by=str(AUTHOR))
    locked = list(withdrawn.select_for_update(of=("self",), no_key=True))
    MemorySource.objects.filter(pk__in=again).update(gone_at=None)
    sources = _sources([memory.pk for memory in locked])
    with authorship.acting(AUTHOR, reason="what it rests on stands again"):
        for memory in locked:
            memory.withdrawn_at, memory.withdrawn_by, memory.withdrawn_reason = None, "", ""
            memories.save_version(memory, ["withdrawn_at", "withdrawn_by", "withdrawn_reason"])
            _carry_out(_decide(memory, sources[memory.pk], set()), "")


@receiver(signals.sources_left)
def support_was_lost(sender: object, *, memory_ids: Sequence[Any], reason: str, **_: Any) -> None:
    """Decide again about memories that rest on less than before, though none of their messages was taken back."""
    rows = Memory.objects.kept().filter(pk__in=memory_ids, origin=Memory.Origin.DISTILLED, edited_by="")
    touched = list(rows.select_for_update(of=("self",), no_key=True).order_by(Collate("key", "C"), "pk"))
    sources = _sources([memory.pk for memory in touched])
    with authorship.acting(AUTHOR, reason=reason):
        for memory in touched:
            if sources[memory.pk]:
                _carry_out(_decide(memory, sources[memory.pk], set()), reason)


def _touched(session: Session, uids: Sequence[str]) -> MemoryQuerySet:
    """Distilled memories that rest on these messages, but for those that a person has edited."""
    resting = MemorySource.objects.filter(pk__in=_ids(session, uids)).values("memory")
    return _automatic(resting)


def _automatic(ids: Any) -> MemoryQuerySet:
    """Those of these memories that something automatic may change."""
    rows = Memory.objects.kept().filter(pk__in=ids, origin=Memory.Origin.DISTILLED, edited_by="")
    # In the order in which a pass writes its keys: two that lock several memories of one agent wait, never for ever.
    return rows.order_by(Collate("key", "C"), "pk")


def _ids(session: Session, uids: Sequence[str]) -> list[int]:
    named = MemorySource.objects.filter(space_id=session.space_id, session=session, uid__in=uids, gone_at__isnull=True)
    return list(named.values_list("pk", flat=True))


def _sources(memory_ids: Sequence[Any]) -> dict[Any, list[MemorySource]]:
    by_memory: dict[Any, list[MemorySource]] = defaultdict(list)
    for source in MemorySource.objects.filter(memory__in=memory_ids):
        by_memory[source.memory_id].append(source)
    return by_memory


def _decide(memory: Memory, sources: Sequence[MemorySource], gone: set[int]) -> Change:
    newest = max(source.version for source in sources)
    standing = {source.version for source in sources if source.gone_at is None and source.pk not in gone}
    if newest in standing:
        return Change(memory=memory, action="stays")
    if standing:
        return Change(memory=memory, action="returns", version=max(standing))
    return Change(memory=memory, action="withdrawn")


def _carry_out(change: Change, reason: str) -> None:
    memory = change.memory
    if change.action == "withdrawn" and memory.withdrawn_at is None:
        memory.withdrawn_at, memory.withdrawn_by = timezone.now(), str(AUTHOR)
        memory.withdrawn_reason = f"all it rests on was taken back: {reason}"[:500]
        memories.save_version(memory, ["withdrawn_at", "withdrawn_by", "withdrawn_reason"])
    elif change.version is not None:
        _return_to(memory, change.version)


def _return_to(memory: Memory, version: int) -> None:
    event = MemoryEvent.objects.filter(pgh_obj_id=memory.pk, version=version).order_by("-pgh_id").first()
    if event is None:
        return
    for field in _CONTENT:
        setattr(memory, field, getattr(event, field))
    memories.save_version(memory, _CONTENT)
    # From now on the content is again what that version's sources support.
    standing = MemorySource.objects.filter(memory=memory, version=version, gone_at__isnull=True)
    standing.update(version=memory.version)
