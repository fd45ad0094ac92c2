"""One memory stands for another that says the same (M9): merged or linked, by consolidation or by an operator.

A merge hides a distilled memory behind another of its owner, which gains its tags and copies of its sources. The hidden
one keeps its row and its own sources: what is taken back is taken from both, and undoing a merge needs no record of
content. Rows are locked curated ones first, then by key, as everywhere.
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from django.db import transaction
from django.db.models import Max
from django.db.models.functions import Collate
from django.utils import timezone

from agentmemory import authorship, signals
from agentmemory.authorship import Author
from agentmemory.errors import Invalid, NotFound, VersionMoved
from agentmemory.models import Consolidation, Memory, MemorySource
from agentmemory.models.memories import TAG_COUNT
from agentmemory.services import activity, memories

Versions = dict[UUID, int]
"""The versions that memories must be at, for an act that was planned on them."""


@transaction.atomic
def merge(
    *, memory_id: UUID, into_id: UUID, author: Author, why: str, reason: str = "", expected: Versions | None = None
) -> Consolidation:
    """Let one distilled memory stand for another one of its owner, which is found nowhere from then on.

    Its key answers with the survivor. Raises `Invalid`, `NotFound`, `VersionMoved`.
    """
    with authorship.acting(author, reason=reason or why):
        rows = _locked([memory_id, into_id], expected)
        memory, survivor = rows[memory_id], rows[into_id]
        _check_merge(memory, survivor)
        memory.merged_into, memory.repeats = survivor, None
        memories.save_version(memory, ["merged_into", "repeats"])
        added = [tag for tag in memory.tags if tag not in survivor.tags][: TAG_COUNT - len(survivor.tags)]
        if added:
            survivor.tags = [*survivor.tags, *added]
            memories.save_version(survivor, ["tags"])
        copy_sources(memory, survivor)
    if expected is None:
        _on_record("merge", memory, survivor, author=author, reason=reason)
    return _recorded("merge", memory, survivor, author=author, why=why, reason=reason, tags_added=added)


@transaction.atomic
def unmerge(*, memory_id: UUID, author: Author, reason: str) -> Memory:
    """Undo a merge, whatever became of the survivor since: the memory stands by itself again, as it was.

    The survivor gives back what it gained by it. The two are never merged again by themselves. Raises `Invalid`,
    `NotFound`.
    """
    into_id = Memory.objects.filter(pk=memory_id).values_list("merged_into", flat=True).first()
    if into_id is None:
        raise Invalid("This memory is merged into no other.")
    with authorship.acting(author, reason=reason):
        # The survivor may have been deleted meanwhile.
        rows = _locked([memory_id, into_id], deleted_too=True)
        memory, survivor = rows[memory_id], rows[into_id]
        if memory.merged_into_id != into_id:
            raise VersionMoved("The merge was undone already, or another one made.")
        memory.merged_into = None
        memories.save_version(memory, ["merged_into"])
        _take_tags_back(memory, survivor)
        _take_sources_back(memory, survivor)
    _note_undone("merge", memory, survivor, author=author, reason=reason)
    _on_record("unmerge", memory, survivor, author=author, reason=reason)
    signals.sources_left.send(Memory, memory_ids=[survivor.pk], reason="a merge was undone")
    return memory


@transaction.atomic
def link(
    *, memory_id: UUID, curated_id: UUID, author: Author, why: str, reason: str = "", expected: Versions | None = None
) -> Consolidation:
    """Leave a distilled memory out of search and context for a curated one that says the same.

    It ends by itself when either says something else or goes. Raises `Invalid`, `NotFound`, `VersionMoved`.
    """
    with authorship.acting(author, reason=reason or why):
        curated = _locked([curated_id], expected)[curated_id]
        memory = _locked([memory_id], expected)[memory_id]
        _check_link(memory, curated)
        memory.repeats = curated
        memories.save_version(memory, ["repeats"])
    if expected is None:
        _on_record("link", memory, curated, author=author, reason=reason)
    return _recorded("link", memory, curated, author=author, why=why, reason=reason)


@transaction.atomic
def unlink(*, memory_id: UUID, author: Author, reason: str) -> Memory:
    """Show a linked memory in search and context again, and never link the two by themselves. Raises `Invalid`."""
    with authorship.acting(author, reason=reason):
        memory = _locked([memory_id])[memory_id]
        curated = memory.repeats
        if curated is None:
            raise Invalid("This memory is linked to no other.")
        memory.repeats = None
        memories.save_version(memory, ["repeats"])
    _note_undone("link", memory, curated, author=author, reason=reason)
    _on_record("unlink", memory, curated, author=author, reason=reason)
    return memory


@transaction.atomic
def keep_apart(*, memory_id: UUID, other_id: UUID, author: Author, reason: str) -> Consolidation:
    """Note that a distilled memory and a curated one are both right: neither linked by itself, nor shown as a
    disagreement. Raises `NotFound`, `Invalid`.
    """
    rows = _locked([memory_id, other_id])
    memory, other = rows[memory_id], rows[other_id]
    if kept_apart(memory_id, [other_id]):
        raise Invalid("They stand beside each other already.")
    row = _recorded("link", memory, other, author=author, why="both are right", reason=reason)
    _note_undone("link", memory, other, author=author, reason=reason)
    _on_record("both are right", memory, other, author=author, reason=reason)
    return row


def kept_apart(memory_id: UUID, other_ids: Collection[UUID]) -> set[UUID]:
    """Which of the others somebody has said must stand beside this one."""
    undone = Consolidation.objects.filter(undone_at__isnull=False)
    here = undone.filter(memory=memory_id, other__in=other_ids).values_list("other", flat=True)
    there = undone.filter(other=memory_id, memory__in=other_ids).values_list("memory", flat=True)
    return {pk for pk in (*here, *there) if pk is not None}


def copy_sources(memory: Memory, survivor: Memory) -> None:
    """Let the survivor rest on what the merged one rests on. It supports the survivor's content as it is now."""
    newest = MemorySource.objects.filter(memory=survivor).aggregate(version=Max("version"))["version"]
    MemorySource.objects.bulk_create(
        [
            _copy(source, survivor, version=newest or survivor.version, came_with=memory.pk)
            for source in MemorySource.objects.filter(memory=memory, gone_at__isnull=True).order_by("-version")
        ],
        ignore_conflicts=True,
    )


def _copy(source: MemorySource, survivor: Memory, *, version: int, came_with: UUID) -> MemorySource:
    return MemorySource(
        space_id=source.space_id,
        memory=survivor,
        session_id=source.session_id,
        message_id=source.message_id,
        session_name=source.session_name,
        uid=source.uid,
        seq=source.seq,
        quote=source.quote,
        verified=source.verified,
        pass_id=source.pass_id,
        version=version,
        came_with=came_with,
    )


def _locked(
    pks: Collection[UUID], expected: Versions | None = None, *, deleted_too: bool = False
) -> dict[UUID, Memory]:
    """These memories, locked in the order of their keys. `no_key`: who adds a source to one of them need not wait."""
    present = Memory.objects.all() if deleted_too else Memory.objects.kept()
    rows = present.select_for_update(of=("self",), no_key=True).filter(pk__in=pks)
    found = {row.pk: row for row in rows.defer("search").order_by(Collate("key", "C"), "pk")}
    if set(found) != set(pks):
        raise NotFound("There is no such memory.")
    if expected is not None and any(row.version != expected[pk] for pk, row in found.items()):
        raise VersionMoved("The memory has changed since this was planned.")
    return found


def _check_merge(memory: Memory, survivor: Memory) -> None:
    if memory.pk == survivor.pk:
        raise Invalid("A memory is not merged into itself.")
    if {memory.origin, survivor.origin} != {Memory.Origin.DISTILLED}:
        raise Invalid("Only distilled memories are merged.")
    if (memory.space_id, memory.owner_id) != (survivor.space_id, survivor.owner_id):
        raise Invalid("Only memories of one owner are merged.")
    _check_stands(memory, survivor)


def _check_link(memory: Memory, curated: Memory) -> None:
    if (memory.origin, curated.origin) != (Memory.Origin.DISTILLED, Memory.Origin.CURATED):
        raise Invalid("A distilled memory is linked to a curated one.")
    if memory.space_id != curated.space_id or curated.owner_id not in (None, memory.owner_id):
        raise Invalid("The curated memory is neither its owner's nor shared.")
    if curated.expires_at is not None:
        raise Invalid("The curated memory ends one day, and nothing would be found then.")
    if memory.repeats_id == curated.pk:
        raise Invalid("It is linked to it already.")
    _check_stands(memory, curated)


def _check_stands(*rows: Memory) -> None:
    if any(row.merged_into_id is not None or row.withdrawn_at is not None for row in rows):
        raise Invalid("One of the two was merged or withdrawn already.")


def _take_tags_back(memory: Memory, survivor: Memory) -> None:
    """What another merge brought too, the survivor keeps."""
    merges = Consolidation.objects.filter(kind=Consolidation.Kind.MERGE, other=survivor, undone_at__isnull=True)
    own = {tag for row in merges.filter(memory=memory) for tag in row.tags_added}
    others = {tag for row in merges.exclude(memory=memory).select_related("memory") for tag in row.memory.tags}
    left = [tag for tag in survivor.tags if tag not in own - others]
    if left != survivor.tags:
        survivor.tags = left
        memories.save_version(survivor, ["tags"])


def _take_sources_back(memory: Memory, survivor: Memory) -> None:
    """Remove the copies, also where the survivor has been merged into another since, and that into a third."""
    MemorySource.objects.filter(memory=survivor, came_with=memory.pk).delete()
    child = survivor
    while child.merged_into is not None:
        rests_on = set(MemorySource.objects.filter(memory=child).values_list("session_name", "uid"))
        copies = MemorySource.objects.filter(memory=child.merged_into, came_with=child.pk)
        gone = [row.pk for row in copies if (row.session_name, row.uid) not in rests_on]
        MemorySource.objects.filter(pk__in=gone).delete()
        child = child.merged_into


def _recorded(
    kind: str, memory: Memory, other: Memory, *, author: Author, why: str, reason: str, tags_added: Collection[str] = ()
) -> Consolidation:
    return Consolidation.objects.create(
        space_id=memory.space_id,
        kind=kind,
        memory=memory,
        other=other,
        why=why[:300],
        author=str(author)[:300],
        reason=reason[:500],
        tags_added=list(tags_added),
    )


def _on_record(act: str, memory: Memory, other: Memory, *, author: Author, reason: str) -> None:
    """What an operator does by hand. What was planned is on record as one act of its own."""
    if author.kind == "operator":
        detail = {"other": str(other.pk)}
        activity.record(act, who=str(author), target=memory, reason=reason, space=memory.space, detail=detail)


def _note_undone(kind: str, memory: Memory, other: Memory, *, author: Author, reason: str) -> None:
    rows = Consolidation.objects.filter(kind=kind, memory=memory, other=other, undone_at__isnull=True)
    rows.update(undone_at=timezone.now(), undone_by=str(author)[:300], undone_reason=reason[:500])
