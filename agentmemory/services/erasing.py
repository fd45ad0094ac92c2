"""Erasing for good, over every table of this app; others follow by signals. Called within a purge alone (M5).

Rows go with the triggers of the search index and of vectors behind them. What others have of them (copied sources, tags
that came with a merge, quotes, versions of a history, names in the record of acts) is taken out of those.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, TypeVar
from uuid import UUID

from django.apps import apps
from django.db.models import F, Func, Q, QuerySet, Value
from django.utils import timezone

from agentmemory import signals
from agentmemory.models import (
    Consolidation,
    ConsolidationLook,
    Memory,
    MemoryAccess,
    MemoryEvent,
    MemorySource,
    MemoryUsage,
    Message,
    MessageEdge,
    Session,
    StoredAnswer,
)
from agentmemory.services import activity, removals, sessions, transcripts


class Counts(Counter[str]):
    """Rows that were deleted or emptied, by table; `rows`: the keys of those that several things take along."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: defaultdict[str, set[Any]] = defaultdict(set)

    def once(self, table: str, keys: Iterable[Any]) -> None:
        """Count these rows of a table, but for those that were counted before."""
        new = set(keys) - self.rows[table]
        self.rows[table] |= new
        self[table] += len(new)


AT_ONCE = 500
REASON = "erased"

Piece = TypeVar("Piece")


def memories(memory_ids: Collection[UUID], counts: Counts) -> None:
    """Erase memories with their history, and those that were merged into them: they say the same."""
    for ids in pieces(sorted(_with_merged(memory_ids))):
        counts.rows[Memory._meta.db_table].update(Memory.objects.filter(pk__in=ids).values_list("pk", flat=True))
        _count_versions(MemoryEvent.objects.filter(pgh_obj_id__in=ids), counts)
        _take_back_what_they_brought(ids)
        signals.memories_erased.send(Memory, memory_ids=ids, counts=counts)
        delete(MemorySource.objects.filter(Q(memory__in=ids) | Q(came_with__in=ids)), counts)
        delete(Consolidation.objects.filter(Q(memory__in=ids) | Q(other__in=ids)), counts)
        for model in (ConsolidationLook, MemoryAccess, MemoryUsage):
            delete(model._default_manager.filter(memory__in=ids), counts)
        freed = {"version": F("version") + 1, "updated_at": timezone.now()}
        Memory.objects.filter(repeats__in=ids).exclude(pk__in=ids).update(repeats=None, **freed)
        Memory.objects.filter(Q(pk__in=ids) | Q(merged_into__in=ids)).update(merged_into=None, repeats=None)
        delete(Memory.objects.filter(pk__in=ids), counts)
        # Last: deleting a memory is the last entry of its history.
        MemoryEvent.objects.filter(pgh_obj_id__in=ids).delete()
        counts["agentmemory_activity"] += activity.forget(Memory, ids)


def answers(space_ids: Collection[int], counts: Counts) -> None:
    """Erase the answers that are kept for calls that come again: nobody knows what of all is in them."""
    delete(StoredAnswer.objects.filter(token__space__in=space_ids), counts)


def messages(session: Session, uids: Sequence[str], counts: Counts) -> None:
    """Erase messages of a session, and the memories that rest on nothing else. Their numbers are never used again."""
    session = transcripts.lock(session.pk)
    for piece in pieces(list(uids)):
        rows = Message.objects.filter(session=session, uid__in=piece)
        seqs = list(rows.order_by("seq").values_list("seq", flat=True))
        resting = _resting(session, piece)
        near = _tell(session, piece, seqs, counts, whole=False)
        counts["agentmemory_message"] += len(seqs)
        removals.remove(session=session, uids=piece, reason=REASON, guard=_in_every_state)
        named = Q(target_uid__in=piece) | Q(source_uid__in=piece)
        delete(MessageEdge.objects.filter(named, session=session), counts)
        _settle(resting, near, session, piece, counts)
    counts["agentmemory_activity"] += activity.forget(Session, [session.pk])


def session(session: Session, counts: Counts) -> None:
    """Erase a session with all of its messages, and the memories that rest on nothing else."""
    session = transcripts.lock(session.pk)
    pk, rows = session.pk, Message.objects.filter(session=session)
    found = list(rows.order_by("seq").values_list("uid", "seq"))
    uids = [uid for uid, _ in found]
    resting = _resting(session, uids)
    near = _tell(session, uids, [seq for _, seq in found], counts, whole=True)
    counts["agentmemory_message"] += len(found)
    counts["agentmemory_messageedge"] += MessageEdge.objects.filter(session=session).count()
    counts["agentmemory_session"] += 1
    sessions.delete(session=session, guard=_in_every_state)
    _settle(resting, near, session, uids, counts)
    counts["agentmemory_activity"] += activity.forget(Session, [pk])


def delete(rows: QuerySet[Any], counts: Counts) -> None:
    """Delete rows, and count them by their tables."""
    _, by_model = rows.order_by().delete()
    for label, count in by_model.items():
        counts[apps.get_model(label)._meta.db_table] += count


def history(rows: QuerySet[Any], counts: Counts) -> None:
    """Delete versions of memories from their history."""
    _count_versions(rows, counts)
    rows.order_by().delete()


def _count_versions(rows: QuerySet[Any], counts: Counts) -> None:
    """Each once, and none of those that erasing itself wrote: nobody could tell where they come from."""
    written = rows.exclude(pgh_context__reason=REASON)
    counts.once(MemoryEvent._meta.db_table, written.values_list("pgh_id", flat=True))


def pieces(items: Sequence[Piece]) -> Iterator[Sequence[Piece]]:
    """The items, so many at a time."""
    for at in range(0, len(items), AT_ONCE):
        yield items[at : at + AT_ONCE]


def _in_every_state(session: Session) -> None:
    """What must go goes also while somebody runs the session."""


def _tell(session: Session, uids: Sequence[str], seqs: Sequence[int], counts: Counts, *, whole: bool) -> set[UUID]:
    """Let the other apps erase what they have. Which memories may have words of it in their context."""
    told = {"session": session, "uids": uids, "seqs": seqs, "whole": whole, "counts": counts}
    answers: Any = signals.messages_erased.send(Session, **told)
    return {pk for _, near in answers for pk in near or ()}


def _with_merged(memory_ids: Collection[UUID]) -> set[UUID]:
    found, further = set(memory_ids), set(memory_ids)
    while further:
        further = set(Memory.objects.filter(merged_into__in=further).values_list("pk", flat=True)) - found
        found |= further
    return found


def _take_back_what_they_brought(ids: Sequence[UUID]) -> None:
    """Take tags that came with a merge out of a survivor that stays, and out of its history."""
    for row in Consolidation.objects.filter(memory__in=ids, kind="merge").exclude(other__in=ids).exclude(tags_added=[]):
        for tag in row.tags_added:
            without = Func(F("tags"), Value(tag), function="array_remove")
            survivor = Memory.objects.filter(pk__in=[row.other_id], tags__contains=[tag])
            survivor.update(tags=without, version=F("version") + 1, updated_at=timezone.now())
            MemoryEvent.objects.filter(pgh_obj_id=row.other_id, tags__contains=[tag]).update(tags=without)


Resting = dict[UUID, dict[int, bool]]
"""Memories, the versions that have sources, and whether one of those is kept."""


def _resting(session: Session, uids: Sequence[str]) -> Resting:
    ids = _of(session, uids).values("memory")
    found: Resting = defaultdict(dict)
    named = set(uids)
    for source in MemorySource.objects.filter(memory__in=ids).order_by("version"):
        kept = source.gone_at is None and not (source.session_id == session.pk and source.uid in named)
        versions = found[source.memory_id]
        versions[source.version] = versions.get(source.version, False) or kept
    return dict(found)


def _of(session: Session, uids: Sequence[str]) -> QuerySet[MemorySource]:
    """Sources that are these messages; a session that is deleted has left its name alone."""
    gone = Q(session__isnull=True, session_name=session.name, memory__owner=session.agent_id)
    rows = MemorySource.objects.filter(Q(session=session.pk) | gone, space_id=session.space_id)
    return rows.filter(uid__in=uids)


def _settle(resting: Resting, near: set[UUID], session: Session, uids: Sequence[str], counts: Counts) -> None:
    """Erase what rests on nothing any more; of the rest, the versions that came from what was erased alone."""
    for source in _of(session, uids).exclude(quote="").values("memory", "quote").distinct():
        others = MemorySource.objects.filter(**source).exclude(pk__in=_of(session, uids).values("pk"))
        counts["agentmemory_memorysource"] += others.update(quote="", verified=False)
    delete(_of(session, uids).filter(memory__in=list(resting)), counts)
    memories([pk for pk, versions in resting.items() if not any(versions.values())], counts)
    for pk, versions in resting.items():
        if any(versions.values()) and not all(versions.values()):
            _erase_versions(pk, versions, counts)
    for ids in pieces(sorted(near | set(resting))):
        _empty_contexts(ids, counts)


def _empty_contexts(ids: Sequence[UUID], counts: Counts) -> None:
    """Take the words around messages out of the history, and out of memories that nothing automatic has changed."""
    earlier = MemoryEvent.objects.filter(pgh_obj_id__in=ids).exclude(context="")
    _count_versions(earlier, counts)
    earlier.update(context="")
    left_alone = Memory.objects.filter(~Q(edited_by="") | Q(withdrawn_at__isnull=False), pk__in=ids).exclude(context="")
    left_alone.update(context="", version=F("version") + 1, updated_at=timezone.now())
    MemoryEvent.objects.filter(pgh_obj_id__in=ids).exclude(context="").update(context="")


def _erase_versions(memory_id: UUID, versions: dict[int, bool], counts: Counts) -> None:
    """Erase the history between a version that rested on what is gone and the next one that did not."""
    known = sorted(versions)
    current = Memory.objects.filter(pk=memory_id).values_list("content", flat=True).first()
    gone = []
    for event in MemoryEvent.objects.filter(pgh_obj_id=memory_id).order_by("pgh_id"):
        at = bisect_right(known, event.version)
        if at and not versions[known[at - 1]] and event.content != current:
            gone.append(event.pgh_id)
    history(MemoryEvent.objects.filter(pgh_id__in=gone), counts)
