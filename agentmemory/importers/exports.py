"""What the exports of conversations have in common: one document that holds many of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from agentmemory.importers import assembly, base, documents, skips

_BEGINNING = 1024 * 1024
"""Bytes in which the first conversation names its members."""

Object = dict[str, object]


def peek(path: Path, member: str) -> object:
    """What the file holds, or None where its beginning does not name `member`: these files are large."""
    with path.open("rb") as file:
        named = f'"{member}"'.encode() in file.read(_BEGINNING)
    return documents.peek(path) if named else None


def conversations(document: object) -> Sequence[object]:
    """The conversations of a document, which is a list of them or a single one."""
    return document if isinstance(document, list) else [document]


def read(
    path: Path,
    *,
    is_one: Callable[[object], bool],
    take: Callable[[Object, skips.Skips], assembly.SessionDraft | str],
    settled_before: datetime | None,
) -> base.Transcript:
    """Every conversation of the file, each put together by `take`, which gives a reason for one that it cannot use.

    Raises `UnreadableTranscript` where the file does not open, or nothing in it is a conversation.
    """
    try:
        found = conversations(documents.read(path))
    except OSError as error:
        raise base.UnreadableTranscript(f"The file does not open: {error.strerror or error}.") from error
    if found and not any(is_one(entry) for entry in found):
        raise base.UnreadableTranscript("Nothing in the file is a conversation of this format.")
    skipped = skips.Skips()
    sessions = []
    for number, entry in enumerate(found, start=1):
        session = _one(entry, is_one=is_one, take=take, skipped=skipped, settled_before=settled_before)
        if isinstance(session, str):
            skipped.add(base.Skipped(line=0, reason=f"conversation {number}: {session}"))
        elif session.messages:
            sessions.append(session)
    return base.Transcript(sessions=tuple(sessions), skipped=tuple(skipped))


def _one(
    entry: object,
    *,
    is_one: Callable[[object], bool],
    take: Callable[[Object, skips.Skips], assembly.SessionDraft | str],
    skipped: skips.Skips,
    settled_before: datetime | None,
) -> base.ImportedSession | str:
    if not isinstance(entry, dict) or not is_one(entry):
        return "it is none"
    draft = take(entry, skipped)
    if isinstance(draft, str):
        return draft
    finished = draft.finished(settled_before=settled_before)
    return finished.reason if isinstance(finished, base.Skipped) else finished


def within(value: Mapping[str, object], key: str) -> Object:
    """The object under `key`; an empty one where there is none."""
    inner = value.get(key)
    return inner if isinstance(inner, dict) else {}


def entries(value: Mapping[str, object], key: str) -> Sequence[object]:
    """The list under `key`; an empty one where there is none."""
    inner = value.get(key)
    return inner if isinstance(inner, list) else ()
