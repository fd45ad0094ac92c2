"""What operators do with memories. Every act names its author and a reason, and every one can be taken back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.utils import timezone

from agentmemory import authorship
from agentmemory.authorship import Author
from agentmemory.errors import Invalid, NotFound, VersionMoved
from agentmemory.models import Agent, Memory, MemoryEvent
from agentmemory.services import activity, limits, memories

RESTORED = ("content", "tags", "context", "importance", "pinned", "expires_at")
"""What a version gives back."""


@transaction.atomic
def edit(*, memory_id: UUID, author: Author, reason: str, expected: int | None = None, **changes: Any) -> Memory:
    """Change `content`, `tags`, `context`, `importance`, `pinned` or `expires_at`.

    `expected` is the version that the changes were made to. A distilled memory whose content was set by hand is left
    alone by every later pass. Raises `Invalid`, `NotFound`, `VersionMoved`.
    """
    return _edited("edit", memory_id=memory_id, author=author, reason=reason, expected=expected, changes=changes)


def _edited(
    name: str, *, memory_id: UUID, author: Author, reason: str, changes: dict[str, Any], expected: int | None = None
) -> Memory:
    checked = {field: _CHECKS[field](value) if field in _CHECKS else value for field, value in changes.items()}
    with _act(name, memory_id=memory_id, author=author, reason=reason) as memory:
        if expected is not None and memory.version != expected:
            raise VersionMoved(f"It was changed meanwhile, and is at version {memory.version}.")
        _refuse(all(getattr(memory, field) == value for field, value in checked.items()), "It is so already.")
        if memory.origin == Memory.Origin.DISTILLED and checked.get("content", memory.content) != memory.content:
            checked["edited_by"] = str(author)
        return _save(memory, checked)


@transaction.atomic
def remove(*, memory_id: UUID, author: Author, reason: str) -> Memory:
    """Delete a memory, reversibly."""
    with _act("delete", memory_id=memory_id, author=author, reason=reason) as memory:
        memories.mark_deleted(memory)
        return memory


@transaction.atomic
def undelete(*, memory_id: UUID, author: Author, reason: str) -> Memory:
    """Bring a deleted memory back. Raises `Invalid` when its key is taken by now."""
    with _act("undelete", memory_id=memory_id, author=author, reason=reason, deleted=True) as memory:
        return _saved_where_free(memory, {"deleted_at": None})


@transaction.atomic
def restore_version(*, memory_id: UUID, version: int, author: Author, reason: str) -> Memory:
    """Write an earlier version's content again, as the newest version. Raises `NotFound` without such a version."""
    event = MemoryEvent.objects.filter(pgh_obj_id=memory_id, version=version).order_by("-pgh_id").first()
    if event is None:
        raise NotFound(f"The memory has no version {version}.")
    changes = {field: getattr(event, field) for field in RESTORED}
    return _edited("restore", memory_id=memory_id, author=author, reason=reason, changes=changes)


@transaction.atomic
def promote(*, memory_id: UUID, author: Author, reason: str) -> Memory:
    """Write a distilled memory as a curated one of the same key and owner, new or over it. The distilled one stays,
    linked to it.
    """
    _lock_its_curated(memory_id)
    with _act("promote", memory_id=memory_id, author=author, reason=reason) as distilled:
        if distilled.origin != Memory.Origin.DISTILLED:
            raise Invalid("Only a distilled memory can be promoted.", field="origin")
        curated = distilled.repeats
        same = curated is not None and (curated.content, curated.tags) == (distilled.content, distilled.tags)
        _refuse(same, "It is promoted already.")
        # Without the context: it holds words of the conversation, which a retraction could not take back from here.
        values = {"content": distilled.content, "tags": distilled.tags}
        place = {
            "space": distilled.space,
            "owner": distilled.owner,
            "origin": Memory.Origin.CURATED,
            "key": distilled.key,
        }
        curated, created = memories.locked_or_new(place=place, values=values, created_by=str(author))
        if not created:
            _save(curated, {**memories.brought_back(curated), **values})
        # From now on it repeats the curated one, and is left out of search and context (M9).
        _save(distilled, {"repeats": curated})
        return curated


@transaction.atomic
def share(*, memory_id: UUID, author: Author, reason: str) -> Memory:
    """Give a private memory to its whole space. Raises `Invalid` when the space has one of that key."""
    with _act("share", memory_id=memory_id, author=author, reason=reason) as memory:
        _refuse(memory.owner_id is None, "It is shared already.")
        return _saved_where_free(memory, {"owner": None})


@transaction.atomic
def give_back(*, memory_id: UUID, agent: Agent, author: Author, reason: str) -> Memory:
    """Make a memory private to an agent of its space. Raises `Invalid` when the agent has one of that key."""
    with _act("give back", memory_id=memory_id, author=author, reason=reason) as memory:
        if agent.space_id != memory.space_id:
            raise Invalid("The agent belongs to another space.", field="agent")
        _refuse(memory.owner_id == agent.pk, f"It is private to {agent} already.")
        return _saved_where_free(memory, {"owner": agent})


@transaction.atomic
def withdraw(*, memory_id: UUID, author: Author, reason: str) -> Memory:
    """Take a memory out of search, context and lists. It stays here, with the reason."""
    with _act("withdraw", memory_id=memory_id, author=author, reason=reason) as memory:
        _refuse(memory.withdrawn_at is not None, "It is withdrawn already.")
        return _save(
            memory,
            {"withdrawn_at": timezone.now(), "withdrawn_by": str(author), "withdrawn_reason": reason[:500]},
        )


@transaction.atomic
def reinstate(*, memory_id: UUID, author: Author, reason: str) -> Memory:
    """Bring a withdrawn memory back to search, context and lists."""
    with _act("reinstate", memory_id=memory_id, author=author, reason=reason) as memory:
        _refuse(memory.withdrawn_at is None, "It is in use already.")
        return _save(memory, {"withdrawn_at": None, "withdrawn_by": "", "withdrawn_reason": ""})


def _lock_its_curated(memory_id: UUID) -> None:
    """Lock the curated memory of this key before the distilled one: a write to it unlinks what repeats it (M9)."""
    row = Memory.objects.filter(pk=memory_id).values("space", "owner", "key").first()
    if row is not None:
        place = Memory.objects.kept().filter(**row, origin=Memory.Origin.CURATED)
        list(place.select_for_update(of=("self",), no_key=True).values_list("pk", flat=True))


def _expiry(value: datetime | None) -> datetime | None:
    if value is not None and timezone.is_naive(value):
        raise Invalid("The expiry needs a time zone.", field="expires_at")
    return value


_CHECKS: dict[str, Any] = {
    "content": limits.content,
    "tags": limits.tags,
    "context": limits.context,
    "importance": limits.importance,
    "expires_at": _expiry,
}


@contextmanager
def _act(name: str, *, memory_id: UUID, author: Author, reason: str, deleted: bool = False) -> Iterator[Memory]:
    """One act on one locked memory, in its history and on record."""
    with authorship.acting(author, reason=reason):
        memory = _locked(memory_id, deleted=deleted)
        yield memory
    detail = {"version": memory.version}
    activity.record(name, who=str(author), target=memory, reason=reason, space=memory.space, detail=detail)


def _locked(memory_id: UUID, *, deleted: bool = False) -> Memory:
    rows = Memory.objects.filter(pk=memory_id, deleted_at__isnull=not deleted)
    row = rows.select_for_update(of=("self",), no_key=True).first()
    if row is None:
        raise NotFound("There is no such memory.")
    if row.merged_into_id is not None:
        raise Invalid("This memory was merged into another: undo that first.")
    return row


def _refuse(done: bool, words: str) -> None:
    """Tell the second of two who do the same at once: asked of the locked row, so that it is done and recorded once."""
    if done:
        raise Invalid(words)


def _save(memory: Memory, values: dict[str, Any]) -> Memory:
    for field, value in values.items():
        setattr(memory, field, value)
    memories.save_version(memory, list(values))
    return memory


def _saved_where_free(memory: Memory, values: dict[str, Any]) -> Memory:
    try:
        with transaction.atomic():
            return _save(memory, values)
    except IntegrityError as error:
        if "memory_key_unique" not in str(error):
            raise
        raise Invalid("There is another memory with this key.", field="key") from error
