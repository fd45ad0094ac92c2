"""Memories out of an export, into a space: what is not there is made as it was, what is there is left alone (M2).

Repeating it changes nothing. An id that is free is kept; one that another space has becomes another one, the same each
time. What is there and says something else is told, and written over only where that was asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

import pgtrigger
from django.db import DatabaseError, IntegrityError, connection, transaction
from pydantic import ValidationError

from agentmemory import authorship, sqlstates
from agentmemory.authorship import Author
from agentmemory.errors import AgentMemoryError, Invalid
from agentmemory.models import Agent, Consolidation, Memory, MemorySource, MemoryUsage, Message, Session, Space
from agentmemory.services import exported, exporting, limits, memories, spaces

NAMESPACE = UUID("6f2d1c1e-6f0b-5d0f-9d0a-0e7f4c2a9b51")
LONGEST_LINE = 64 * 1024 * 1024

_CONTENT = ("content", "tags", "context", "importance", "pinned", "expires_at")
_HISTORY = "agentmemory.Memory:written_insert"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A line that was not taken in as it is: `refused` cannot be, `kept` is here already and says something else."""

    line: int
    key: str
    kind: str
    why: str


@dataclass(kw_only=True)
class Report:
    """What became of the lines."""

    created: int = 0
    known: int = 0
    replaced: int = 0
    kept: int = 0
    refused: int = 0

    def __str__(self) -> str:
        kept = f", {self.kept} kept as they are here" if self.kept else ""
        replaced = f", {self.replaced} written over" if self.replaced else ""
        refused = f", {self.refused} refused" if self.refused else ""
        return f"{self.created} created, {self.known} already known{replaced}{kept}{refused}"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """How to import: `replace` writes over what says something else; `keep_secrets` takes in what holds secrets."""

    space: Space
    author: Author
    replace: bool = False
    keep_secrets: bool = False


class _Kept(Exception):
    pass


def take_in(*, wanted: Wanted, lines: Iterable[str], on_problem: Callable[[Problem], None]) -> Report:
    """Import lines, each in a transaction of its own: one that is refused holds up none of the others.

    Raises `Invalid` where the first line is not that of an export.
    """
    report = Report()
    left = iter(lines)
    _check_header(next(left, ""))
    for number, text in enumerate(left, start=2):
        if text.strip():
            _take_in(wanted, number, text, report, on_problem)
    return report


def _check_header(text: str) -> None:
    try:
        exported.Header.model_validate_json(text)
    except ValidationError as error:
        raise Invalid(
            f"This is no export of memories: its first line must name the format {exporting.FORMAT}."
        ) from error


def _take_in(wanted: Wanted, number: int, text: str, report: Report, on_problem: Callable[[Problem], None]) -> None:
    key = ""
    try:
        line = _read(text)
        key = line.key
        outcome = _settled(wanted, line)
        setattr(report, outcome, getattr(report, outcome) + 1)
    except _Kept as error:
        report.kept += 1
        on_problem(Problem(line=number, key=key, kind="kept", why=str(error)))
    except (AgentMemoryError, DatabaseError) as error:
        if sqlstates.passes(error):
            # Not of this line: none could be taken in now.
            raise
        report.refused += 1
        why = str(error) if isinstance(error, AgentMemoryError) else "the database refuses it"
        on_problem(Problem(line=number, key=key, kind="refused", why=why))


def _settled(wanted: Wanted, line: exported.Line) -> str:
    """Take a memory in. One that somebody else made meanwhile is found at another try."""
    try:
        return _in_one_transaction(wanted, line)
    except IntegrityError:
        return _in_one_transaction(wanted, line)


def _in_one_transaction(wanted: Wanted, line: exported.Line) -> str:
    with transaction.atomic(), authorship.acting(wanted.author, reason="imported"):
        return _one(wanted, line)


def _read(text: str) -> exported.Line:
    if len(text) > LONGEST_LINE:
        raise Invalid(f"It is longer than {LONGEST_LINE:,} characters.")
    try:
        return exported.Line.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise Invalid(f"{'.'.join(str(part) for part in first['loc']) or 'line'}: {first['msg']}") from error


def _one(wanted: Wanted, line: exported.Line) -> str:
    """Take one memory in. `created`, `known` or `replaced`; raises `_Kept` and `Invalid`."""
    _check(wanted, line)
    owner = spaces.ensure_agent(wanted.space, line.owner) if line.owner else None
    pk = _mapped(wanted.space, line.id)
    here = Memory.objects.select_for_update(of=("self",), no_key=True).filter(pk=pk).first()
    if here is None and line.deleted_at is None:
        place = {"space": wanted.space, "owner": owner, "origin": line.origin, "key": line.key}
        here = Memory.objects.kept().select_for_update(of=("self",), no_key=True).filter(**place).first()
    if here is None:
        _create(wanted.space, owner, pk, line)
        return "created"
    if _says_the_same(here, owner, line):
        return "known"
    if not wanted.replace or (here.owner_id, here.origin, here.key) != (owner and owner.pk, line.origin, line.key):
        raise _Kept(f"the {here.origin} memory {here.pk} is at version {here.version} here and says something else")
    _replace(here, line)
    return "replaced"


def _check(wanted: Wanted, line: exported.Line) -> None:
    for version in (line, *line.history):
        limits.key(version.key)
        limits.content(version.content)
        if not wanted.keep_secrets:
            memories.refuse_secrets(version.key, version.content, version.context, *version.tags)


def _mapped(space: Space, pk: UUID) -> UUID:
    """The id that a memory of an export has here."""
    elsewhere = Memory.objects.filter(pk=pk).exclude(space=space).exists()
    return uuid5(NAMESPACE, f"{space.pk}:{pk}") if elsewhere else pk


def _says_the_same(here: Memory, owner: Agent | None, line: exported.Line) -> bool:
    mine = (here.owner_id, here.origin, here.key, *(getattr(here, name) for name in _CONTENT))
    theirs = (owner and owner.pk, line.origin, line.key, *(getattr(line, name) for name in _CONTENT))
    return mine == theirs and (here.deleted_at is None) == (line.deleted_at is None)


def _replace(here: Memory, line: exported.Line) -> None:
    changes = {**memories.brought_back(here), **{name: getattr(line, name) for name in _CONTENT}}
    if line.deleted_at is None:
        changes["deleted_at"] = None
    for name, value in changes.items():
        setattr(here, name, value)
    memories.save_version(here, list(changes))


def _create(space: Space, owner: Agent | None, pk: UUID, line: exported.Line) -> None:
    values = {name: getattr(line, name) for name in exporting.STATE}
    links = {
        "merged_into_id": _there(space, line.merged_into, owner=owner, origin="distilled"),
        "repeats_id": _there(space, line.repeats, origin="curated"),
    }
    if line.merged_into is not None and links["merged_into_id"] is None:
        raise Invalid("what it was merged into is not here")
    place = {"pk": pk, "space": space, "owner": owner}
    if line.history:
        # Its history is in the file: nothing is to be added to it. pgtrigger speaks to the database at the end, which
        # would answer that its transaction has failed, and not why: so there is a savepoint.
        with pgtrigger.ignore(_HISTORY), transaction.atomic():
            Memory.objects.create(**place, **values, **links)
        _write_history(space, pk, line)
    else:
        Memory.objects.create(**place, **values, **links)
    _write_sources(space, owner, pk, line)
    _write_consolidations(space, pk, line)
    if line.used:
        MemoryUsage.objects.create(memory_id=pk, count=line.used, last_at=line.last_used_at)


def _there(space: Space, pk: UUID | None, **place: Any) -> UUID | None:
    """The memory of this id here, if there is one at this place."""
    if pk is None:
        return None
    found = Memory.objects.filter(pk=_mapped(space, pk), space=space, **place)
    return found.values_list("pk", flat=True).first()


def _write_history(space: Space, pk: UUID, line: exported.Line) -> None:
    """The versions as they were recorded, with their times: as rows of the history's own table."""
    handles = {version.owner for version in line.history if version.owner}
    owners = {handle: spaces.ensure_agent(space, handle).pk for handle in handles}
    rows = [_event(space, pk, version, owners) for version in line.history]
    columns = ", ".join(f'"{column}"' for column in rows[0])
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO agentmemory_memoryevent ({columns}) SELECT {columns} "  # noqa: S608 - names of our own
            "FROM jsonb_populate_recordset(NULL::agentmemory_memoryevent, %s::jsonb)",
            [json.dumps(rows)],
        )


def _event(space: Space, pk: UUID, version: exported.Version, owners: dict[str, int]) -> dict[str, Any]:
    state = version.model_dump(mode="json", include=set(exporting.STATE))
    context = {"author": version.author, "reason": version.why}
    linked = {
        f"{name}_id": str(_mapped(space, target)) if target else None
        for name, target in (("merged_into", version.merged_into), ("repeats", version.repeats))
    }
    return {
        **state,
        **linked,
        "id": str(pk),
        "space_id": space.pk,
        "owner_id": owners[version.owner] if version.owner else None,
        "pgh_obj_id": str(pk),
        "pgh_label": version.label,
        "pgh_created_at": version.at.isoformat(),
        "pgh_context": None if version.author is None else context,
    }


def _write_sources(space: Space, owner: Agent | None, pk: UUID, line: exported.Line) -> None:
    names = {source.session_name for source in line.sources}
    found = Session.objects.filter(space=space, agent=owner, name__in=names) if owner and names else []
    sessions = {session.name: session for session in found}
    said = Message.objects.filter(session__in=sessions.values(), uid__in=[source.uid for source in line.sources])
    messages = {(message.session_id, message.uid): message for message in said.only("session_id", "uid")}
    rows = []
    for source in line.sources:
        session = sessions.get(source.session_name)
        values = source.model_dump(include=set(exporting.SOURCE) - {"came_with"})
        rows.append(
            MemorySource(
                **values,
                space=space,
                memory_id=pk,
                session=session,
                message=messages.get((session.pk, source.uid)) if session else None,
                came_with=_mapped(space, source.came_with) if source.came_with else None,
            )
        )
    MemorySource.objects.bulk_create(rows, batch_size=500)


def _write_consolidations(space: Space, pk: UUID, line: exported.Line) -> None:
    for done in line.consolidations:
        other = _there(space, done.other)
        if (other is None) == (done.kind == "forget"):
            Consolidation.objects.create(
                space=space, memory_id=pk, other_id=other, **done.model_dump(include=set(exporting.CONSOLIDATION))
            )
