"""The memory tool of models: the same memories, worked on as files below `/memories`.

A file is the live memory of a key: the curated one, else the distilled one. An edit writes the curated one, so that
what was distilled stays as it was, behind it. Every edit is a version (M5); a folder is nothing but the beginning of
keys. All of a command is done, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from django.db import IntegrityError, models, transaction
from django.db.models import F, Func

from agentmemory import authorship
from agentmemory.callers import Caller, Scope
from agentmemory.errors import AgentMemoryError, Invalid, VersionMoved
from agentmemory.models import Agent, Memory
from agentmemory.querysets.memories import MemoryQuerySet
from agentmemory.services import limits, memories, memory_paths

P = ParamSpec("P")
R = TypeVar("R")

MOST_FILES = 500
"""Files of a folder that one command may delete or rename."""

LOOKED_AT = 20_000
"""Keys that a listing may look at."""


class Refused(AgentMemoryError):
    """The command could not be done. The message is for the model."""


@dataclass(frozen=True, kw_only=True)
class Shelf:
    """Whose memories are the files: those of an agent (`mine`), or the shared ones (`space`)."""

    caller: Caller
    scope: Scope
    owner: Agent | None = None

    def rows(self) -> MemoryQuerySet:
        return Memory.objects.visible_to(self.caller, scope=self.scope, owner=self.owner).live()

    def draft(self, key: str, content: str, *, tags: Sequence[str] | None = None) -> memories.Draft:
        return memories.Draft(key=key, content=content, tags=tags, scope=self.scope, owner=self.owner)


@transaction.atomic
def view(shelf: Shelf, *, path: str, view_range: Sequence[int] | None = None) -> str:
    """A file with line numbers, or what a folder holds. Counts as one access of the file (M6). Raises `Refused`."""
    key = _key(path)
    found = _file(shelf, key)
    if found is None:
        return _listing(shelf, key, path)
    memories.count_access([found.pk])
    lines = found.content.split("\n")
    first, last = view_range or (1, -1)
    if not 1 <= first <= len(lines) or (last != -1 and last < first):
        raise Refused(f"Invalid `view_range` parameter: {[first, last]}. The file has {len(lines)} lines.")
    shown = lines[first - 1 : None if last == -1 else last]
    return f"Here's the content of {path} with line numbers:\n{memory_paths.numbered(shown, first=first)}"


@transaction.atomic
def create(shelf: Shelf, *, path: str, file_text: str) -> str:
    """A new file. Raises `Refused` where there is one, or a folder."""
    key = _file_key(path)
    _free(shelf, key, f"Error: File {path} already exists")
    _write(shelf.draft(key, file_text), shelf, memories.Expected(there=False), f"Error: File {path} already exists")
    return f"File created successfully at: {path}"


@transaction.atomic
def str_replace(shelf: Shelf, *, path: str, old_str: str, new_str: str) -> str:
    """Put `new_str` where `old_str` stands, once. Raises `Refused`."""
    found = _existing(shelf, path)
    places = list(memory_paths.occurrences(found.content, old_str))
    if not places:
        raise Refused(f"No replacement was performed, old_str `{old_str}` did not appear verbatim in {path}.")
    if len(places) > 1:
        lines = ", ".join(str(line + 1) for line in places[:100])
        raise Refused(
            f"No replacement was performed. Multiple occurrences of old_str `{old_str}` in lines: {lines}. "
            "Please ensure it is unique"
        )
    edited = _edit(shelf, found, found.content.replace(old_str, new_str, 1))
    return f"The memory file has been edited.\n{memory_paths.around(edited, line=places[0])}"


@transaction.atomic
def insert(shelf: Shelf, *, path: str, insert_line: int, insert_text: str) -> str:
    """Put `insert_text` after a line, 0 for the beginning. Raises `Refused`."""
    found = _existing(shelf, path)
    lines = found.content.split("\n")
    if not 0 <= insert_line <= len(lines):
        raise Refused(
            f"Error: Invalid `insert_line` parameter: {insert_line}. "
            f"It should be within the range of lines of the file: [0, {len(lines)}]"
        )
    lines.insert(insert_line, insert_text.removesuffix("\n"))
    _edit(shelf, found, "\n".join(lines))
    return f"The file {path} has been edited."


@transaction.atomic
def delete(shelf: Shelf, *, path: str) -> str:
    """Delete a file, or a folder with all that is in it. An operator can bring each back. Raises `Refused`."""
    key = _key(path)
    if not key:
        raise Refused(f"Error: {memory_paths.ROOT} itself cannot be deleted")
    found = _locked(shelf.rows().filter(key=key)) or _locked(_below(shelf, key), path)
    if not found:
        raise Refused(f"Error: The path {path} does not exist")
    with authorship.acting(shelf.caller.author):
        for memory in found:
            memories.mark_deleted(memory)
    return f"Successfully deleted {path}"


@transaction.atomic
def rename(shelf: Shelf, *, old_path: str, new_path: str) -> str:
    """Give a file, or a folder with all that is in it, another name; its history goes with it. Raises `Refused`."""
    old, new = _key(old_path), _file_key(new_path)
    taken = f"Error: The destination {new_path} already exists"
    if not old:
        raise Refused(f"Error: {memory_paths.ROOT} itself cannot be renamed")
    found = _locked(shelf.rows().filter(key=old)) or _locked(_below(shelf, old), old_path)
    if not found:
        raise Refused(f"Error: The path {old_path} does not exist")
    if new.startswith(old + "/"):
        raise Refused(f"Error: {new_path} lies within {old_path}")
    _free(shelf, new, taken)
    with authorship.acting(shelf.caller.author):
        # What was distilled comes last: where both are live, the curated one is the file that moves.
        for memory in sorted(found, key=lambda memory: memory.origin != Memory.Origin.CURATED):
            _move(shelf, memory, new + memory.key.removeprefix(old), taken)
    return f"Successfully renamed {old_path} to {new_path}"


def _key(path: str) -> str:
    try:
        return memory_paths.key_of(path)
    except Invalid as error:
        raise Refused(str(error)) from error


def _file_key(path: str) -> str:
    key = _key(path)
    if not key:
        raise Refused(f"Error: {memory_paths.ROOT} is a directory")
    return _told(limits.key, key)


def _told(act: Callable[P, R], *given: P.args, **more: P.kwargs) -> R:
    """Do something whose rules a model is to hear of in words."""
    try:
        return act(*given, **more)
    except Invalid as error:
        raise Refused(f"Error: {error}") from error


def _file(shelf: Shelf, key: str) -> Memory | None:
    return shelf.rows().filter(key=key).preferred().first() if limits.storable(key) else None


def _existing(shelf: Shelf, path: str) -> Memory:
    """The file at `path`, locked: two edits at once both count."""
    key = _key(path)
    found = _locked(shelf.rows().filter(key=key)) if limits.storable(key) else []
    if not found:
        raise Refused(f"Error: The path {path} does not exist. Please provide a valid path.")
    return min(found, key=lambda memory: memory.origin != Memory.Origin.CURATED)


def _below(shelf: Shelf, folder: str) -> MemoryQuerySet:
    rows = shelf.rows()
    return rows.filter(key__startswith=folder + "/") if folder else rows


def _locked(rows: MemoryQuerySet, path: str = "") -> list[Memory]:
    """These memories, in the order of their keys: commands that meet wait for each other and never for ever."""
    found = list(rows.order_by("key", "id").select_for_update(of=("self",), no_key=True)[: MOST_FILES + 1])
    if len(found) > MOST_FILES:
        raise Refused(f"Error: {path} holds more than {MOST_FILES} files")
    return found


def _listing(shelf: Shelf, folder: str, path: str) -> str:
    size = Func(F("content"), function="octet_length", output_field=models.IntegerField())
    rows = _below(shelf, folder) if limits.storable(folder) else Memory.objects.none()
    sizes = dict(rows.order_by("-origin", "key").values_list("key", size)[:LOOKED_AT])
    files = [(key, size) for key, size in sizes.items() if memory_paths.is_path(key)]
    if folder and not files:
        raise Refused(f"Error: The path {path} does not exist. Please provide a valid path.")
    return memory_paths.listing(folder, files)


def _free(shelf: Shelf, key: str, taken: str) -> None:
    """Refuse a name that a file or a folder has, or that lies within a file."""
    above = ["/".join(key.split("/")[:depth]) for depth in range(1, key.count("/") + 1)]
    if shelf.rows().filter(key=key).exists() or _below(shelf, key).exists():
        raise Refused(taken)
    if above and (file := shelf.rows().filter(key__in=above).first()):
        raise Refused(f"Error: {memory_paths.path_of(file.key)} is a file, not a directory")


def _write(draft: memories.Draft, shelf: Shelf, expected: memories.Expected, moved: str) -> Memory:
    try:
        written = _told(memories.put, caller=shelf.caller, draft=draft, expected=expected)
    except VersionMoved as error:
        raise Refused(moved) from error
    return written.memory


def _edit(shelf: Shelf, found: Memory, content: str) -> str:
    """Write the next version of a file that is locked; of a distilled one, the curated one before it."""
    curated = found.origin == Memory.Origin.CURATED
    expected = memories.Expected(versions=[found.version]) if curated else memories.Expected(there=False)
    tags = None if curated else found.tags
    moved = "Error: The file was changed by somebody else. Look at it again."
    return _write(shelf.draft(found.key, content, tags=tags), shelf, expected, moved).content


def _move(shelf: Shelf, memory: Memory, key: str, taken: str) -> None:
    """A curated memory takes its history along; what was distilled becomes a curated one under the new key."""
    key = _told(limits.key, key)
    _told(memories.refuse_secrets, key)
    if memory.origin != Memory.Origin.CURATED:
        if not shelf.rows().filter(key=key).exists():
            _write(shelf.draft(key, memory.content, tags=memory.tags), shelf, memories.Expected(there=False), taken)
        memories.mark_deleted(memory)
        return
    memory.key = key
    try:
        with transaction.atomic():
            memories.save_version(memory, ["key"])
    except IntegrityError as error:
        raise Refused(taken) from error
