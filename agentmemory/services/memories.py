"""Memories as their agents write, read and delete them. Everything written here is curated."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from agentmemory import authorship, notes
from agentmemory.callers import Caller, Scope
from agentmemory.errors import AgentMemoryError, HoldsSecret, Invalid, NotFound, VersionMoved
from agentmemory.models import Agent, Memory, MemoryAccess
from agentmemory.querysets.memories import MemoryQuerySet
from agentmemory.services import limits, redaction


@dataclass(frozen=True, kw_only=True)
class Draft:
    """What a caller wants written. `None` keeps what the memory has, or takes the default for a new one.

    `never_expires` takes an expiry away.
    """

    key: str
    content: str
    context: str | None = None
    tags: Sequence[str] | None = None
    scope: Scope | None = None
    owner: Agent | None = None
    importance: float | None = None
    pinned: bool | None = None
    expires_at: datetime | None = None
    never_expires: bool = False


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What must hold of the memory that a write or a deletion meets, looked at under its lock.

    `versions`: it is there, at one of them. `there`: it is there, or it is not.
    """

    versions: Collection[int] | None = None
    there: bool | None = None

    def check(self, memory: Memory | None) -> None:
        """Raise `VersionMoved` when it does not hold."""
        if self.there is not None and self.there != (memory is not None):
            raise VersionMoved("There is such a memory already." if memory else "There is no such memory.")
        if self.versions is not None and (memory is None or memory.version not in self.versions):
            raise VersionMoved("The memory is not at the expected version.")


ANYTHING = Expected()

# How often a key may be taken and freed by others under one write.
_MEETINGS = 10


@dataclass(frozen=True, kw_only=True)
class Written:
    """A memory after a write, and whether the write created it."""

    memory: Memory
    created: bool


@dataclass(frozen=True, kw_only=True)
class BatchItem:
    """What became of one draft of a batch: one of the two."""

    draft: Draft
    written: Written | None = None
    error: AgentMemoryError | None = None


@transaction.atomic
def put(
    *,
    caller: Caller,
    draft: Draft,
    expected: Expected = ANYTHING,
    keep_secrets: bool = False,
) -> Written:
    """Write a curated memory: new, or over the one of this key (M5). The memory comes with its use (M6).

    Raises `Invalid`, `HoldsSecret` unless `keep_secrets` (D13), and `VersionMoved` when `expected` does not hold.
    """
    written = _put(caller=caller, draft=draft, expected=expected, keep_secrets=keep_secrets)
    memory = Memory.objects.with_use().with_merged().select_related("owner").get(pk=written.memory.pk)
    return Written(memory=memory, created=written.created)


@transaction.atomic
def put_many(*, caller: Caller, drafts: Sequence[Draft], keep_secrets: bool = False) -> list[BatchItem]:
    """Write many in one transaction, each on its own: a bad one refuses none of the others.

    They are written in the order of their keys, so that two batches that meet wait for each other and never for ever.
    """
    done: dict[int, BatchItem] = {}
    for index, draft in sorted(enumerate(drafts), key=lambda pair: pair[1].key.strip()):
        done[index] = _attempt(caller, draft, keep_secrets=keep_secrets)
    return [done[index] for index in range(len(drafts))]


@transaction.atomic
def get(
    *, caller: Caller, key: str, scope: Scope | None = None, origin: str | None = None, owner: Agent | None = None
) -> Memory:
    """The preferred memory of this key, as one access (M6), with `access_count` from before it. Raises `NotFound`.

    A key that vanished in a merge answers with the memory that stands for it (M9).
    """
    named = _named(caller, key=key, scope=scope, origin=origin, owner=owner)
    found = named.with_use().with_merged().select_related("owner").first()
    if found is None:
        raise NotFound("There is no such memory.")
    count_access([found.pk])
    return found


@transaction.atomic
def delete(
    *,
    caller: Caller,
    key: str,
    scope: Scope | None = None,
    origin: str | None = None,
    owner: Agent | None = None,
    expected: Expected = ANYTHING,
) -> UUID | None:
    """Delete one memory of this key, in the order of reading. Its id, or nothing where there is none.

    An operator can bring it back. Raises `VersionMoved` when `expected` does not hold.
    """
    rows = _named(caller, key=key, scope=scope, origin=origin, owner=owner).select_for_update(of=("self",), no_key=True)
    found = rows.first()
    expected.check(found)
    if found is None:
        return None
    with authorship.acting(caller.author):
        mark_deleted(found)
    return found.pk


def listing(
    *,
    caller: Caller,
    scope: Scope | None = None,
    origin: str | None = None,
    tag: str | None = None,
    owner: Agent | None = None,
) -> MemoryQuerySet:
    """What the caller finds, newest update first. Looking through it counts no access."""
    found = Memory.objects.visible_to(caller, scope=scope, owner=owner).live().with_use().with_merged()
    if origin is not None:
        found = found.filter(origin=origin)
    if tag is not None:
        found = found.filter(tags__contains=[tag])
    # The index of a row's words is larger than the row.
    return found.select_related("owner").defer("search").order_by("-updated_at", "-id")


def count_access(ids: Iterable[UUID]) -> None:
    """Note one use of each memory, by row id, as rows of their own: nobody waits and no memory changes (M6)."""
    with notes.beside_a_read(), transaction.atomic():
        MemoryAccess.objects.bulk_create([MemoryAccess(memory_id=pk) for pk in ids])


def locked_or_new(
    *,
    place: Mapping[str, Any],
    values: Mapping[str, Any],
    created_by: str,
    check: Callable[[Memory | None], None] = lambda memory: None,
) -> tuple[Memory, bool]:
    """The memory of a place (space, owner, origin, key), locked, or a new one with `values`; and whether it is new.

    `check` is asked about what is there, if anything is, before anything is done. Others may write and delete the
    same key all the while: whoever comes second waits, and goes on from what the first one left (M1).
    """
    # Reads note their use under a key lock of the row: with `no_key` they do not wait for a writer (M6).
    taken = Memory.objects.kept().filter(**place).select_for_update(of=("self",), no_key=True)
    for _ in range(_MEETINGS):
        memory = taken.first()
        check(memory)
        if memory is not None:
            return memory, False
        created = _insert_unless_taken({**place, **values, "created_by": created_by})
        if created is not None:
            return created, True
    raise VersionMoved("Others write and delete this key all the time.")


def _insert_unless_taken(values: Mapping[str, Any]) -> Memory | None:
    """A new memory, or nothing when its key was taken at the same moment (M1)."""
    now = timezone.now()
    try:
        with transaction.atomic():
            return Memory.objects.create(**values, created_at=now, updated_at=now)
    except IntegrityError as error:
        if "memory_key_unique" not in str(error):
            raise
        return None


def is_live(memory: Memory) -> bool:
    """Whether agents find it: neither deleted, withdrawn, expired nor merged into another, as in the queryset."""
    expired = memory.expires_at is not None and memory.expires_at <= timezone.now()
    gone = (memory.deleted_at, memory.withdrawn_at, memory.merged_into_id)
    return gone == (None, None, None) and not expired


def brought_back(memory: Memory) -> dict[str, Any]:
    """What lets a memory live again that is written over: else what is written would not be seen (M9)."""
    values: dict[str, Any] = {"withdrawn_at": None, "withdrawn_by": "", "withdrawn_reason": ""}
    if memory.merged_into_id is not None:
        values["merged_into"] = None
    if memory.expires_at is not None and memory.expires_at <= timezone.now():
        values["expires_at"] = None
    return values


def save_version(memory: Memory, fields: Sequence[str]) -> None:
    """Write the changed `fields` of a locked memory as its next version."""
    memory.version += 1
    memory.updated_at = timezone.now()
    memory.save(update_fields=[*fields, "version", "updated_at"])


def mark_deleted(memory: Memory) -> None:
    """Hide a locked memory for good, reversibly."""
    memory.deleted_at = timezone.now()
    save_version(memory, ["deleted_at"])


def _put(*, caller: Caller, draft: Draft, expected: Expected = ANYTHING, keep_secrets: bool) -> Written:
    values = _checked(draft, keep_secrets=keep_secrets)
    owner = _owner(caller, draft)
    place = {"space": caller.space, "owner": owner, "origin": Memory.Origin.CURATED, "key": values.pop("key")}
    with authorship.acting(caller.author):
        memory, created = locked_or_new(
            place=place,
            values=values,
            created_by=str(caller.author),
            check=lambda there: expected.check(there if there and is_live(there) else None),
        )
        if not created:
            _update(memory, values)
    return Written(memory=memory, created=created)


def _named(caller: Caller, *, key: str, scope: Scope | None, origin: str | None, owner: Agent | None) -> MemoryQuerySet:
    if not limits.storable(key):
        return Memory.objects.none()
    seen = Memory.objects.visible_to(caller, scope=scope, owner=owner)
    if origin is not None:
        seen = seen.filter(origin=origin)
    # From what the caller sees to what the caller sees: a merge shows nobody another's memory (M4).
    vanished = seen.kept().filter(key=key.strip(), merged_into__isnull=False).values_list("pk", flat=True)
    standing = Memory.objects.ends_of(vanished)
    return seen.live().filter(Q(key=key.strip()) | Q(pk__in=standing)).preferred()


def _checked(draft: Draft, *, keep_secrets: bool) -> dict[str, Any]:
    values: dict[str, Any] = {"key": limits.key(draft.key), "content": limits.content(draft.content)}
    if draft.context is not None:
        values["context"] = limits.context(draft.context)
    if draft.tags is not None:
        values["tags"] = limits.tags(draft.tags)
    if draft.importance is not None:
        values["importance"] = limits.importance(draft.importance)
    if draft.pinned is not None:
        values["pinned"] = draft.pinned
    if draft.expires_at is not None or draft.never_expires:
        values["expires_at"] = draft.expires_at
    if not keep_secrets:
        refuse_secrets(values["key"], values["content"], values.get("context", ""), *values.get("tags", ()))
    return values


def refuse_secrets(*texts: str) -> None:
    """Raise `HoldsSecret` when any of the texts does (D13)."""
    kinds = sorted({kind for text in texts for kind in redaction.secret_kinds(text)})
    if kinds:
        raise HoldsSecret(tuple(kinds))


def _owner(caller: Caller, draft: Draft) -> Agent | None:
    if draft.scope == "all":
        raise Invalid("A memory is written to mine or space.", field="scope")
    if caller.agent is not None:
        return None if draft.scope == "space" else caller.agent
    if draft.scope == "mine" and draft.owner is None:
        raise Invalid("A space token names the owner of what is mine.", field="owner")
    return draft.owner if draft.scope == "mine" else None


def _update(memory: Memory, values: dict[str, Any]) -> None:
    values = {**brought_back(memory), **values}
    for field, value in values.items():
        setattr(memory, field, value)
    save_version(memory, list(values))


def _attempt(caller: Caller, draft: Draft, *, keep_secrets: bool) -> BatchItem:
    try:
        with transaction.atomic():
            return BatchItem(draft=draft, written=_put(caller=caller, draft=draft, keep_secrets=keep_secrets))
    except AgentMemoryError as error:
        return BatchItem(draft=draft, error=error)
