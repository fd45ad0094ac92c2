"""Transcripts of other programs, from their files into sessions. Safe to repeat, and to stop at any moment."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.db import DataError
from django.db.models import Q
from django.utils import timezone

from agentmemory import importers
from agentmemory.errors import AgentMemoryError, Invalid, UidConflict
from agentmemory.importers import base, files
from agentmemory.models import Agent, Session
from agentmemory.services import grown, sessions, transcripts

AUTO = "auto"
BATCH_MESSAGES = 500
BATCH_CHARACTERS = 8_000_000
"""Of the messages' JSON, about. A transaction takes one message more than fits, never less than one."""

_FITTINGS = 5


@dataclass(frozen=True, kw_only=True)
class FileReport:
    """What an import made of one session of one file, or of a file without any.

    `new` and `known` count messages, `skipped` holds lines of the file. With an `error` it is not imported, or not
    wholly; repeating the import goes on where it ended.
    """

    file: Path
    session: str = ""
    new: int = 0
    known: int = 0
    skipped: Sequence[base.Skipped] = ()
    error: str = ""


def formats() -> list[str]:
    """What `import_path` takes for a format."""
    return [AUTO, *importers.FORMATS]


def import_path(
    *,
    agent: Agent,
    path: Path,
    format: str = AUTO,  # noqa: A002 - the word of the command
    now: datetime | None = None,
    on_report: Callable[[FileReport], None] | None = None,
) -> list[FileReport]:
    """Import a file, or every file below a folder, as sessions of `agent`; `on_report` hears of each as it is done.

    Messages that are here already are not written again. A session that has been quiet for `AGENTMEMORY_IDLE_AFTER`
    seconds is finished to its last message (R6). A file that is no transcript is an error where `path` names it, and
    skipped where it lies in a folder. Raises `Invalid` for an unknown format.
    """
    return import_files(agent=agent, entries=files.walk(path), format=format, now=now, on_report=on_report)


def import_files(
    *,
    agent: Agent,
    entries: Iterable[files.Found | files.Missed],
    format: str = AUTO,  # noqa: A002 - the word of the command
    now: datetime | None = None,
    on_report: Callable[[FileReport], None] | None = None,
) -> list[FileReport]:
    """Import these files, as `import_path` does. Raises `Invalid` for an unknown format."""
    if format not in formats():
        raise Invalid(f"One of {', '.join(formats())}.", field="format")
    run = _Run(agent=agent, importer=importers.FORMATS.get(format), now=now or timezone.now())
    reports: list[FileReport] = []
    for entry in entries:
        for report in run.entry(entry):
            reports.append(report)
            if on_report:
                on_report(report)
    run.finish()
    return reports


class _Run:
    """One import: who it is for, when it began, and which sessions it met."""

    def __init__(self, *, agent: Agent, importer: base.Importer | None, now: datetime) -> None:
        self.agent = agent
        self.importer = importer
        self.now = now
        self.quiet_before = now - timedelta(seconds=settings.AGENTMEMORY_IDLE_AFTER)
        self.met: set[int] = set()
        self.untimed: set[int] = set()

    def entry(self, entry: files.Found | files.Missed) -> Iterator[FileReport]:
        if isinstance(entry, files.Missed):
            yield _unused(entry.path, entry.reason, harmless=entry.harmless)
            return
        try:
            importer = self._importer(entry)
            if importer is None:
                yield _unused(entry.path, "no transcript of a known format", harmless=not entry.named)
                return
            transcript = importer.read(entry.path, settled_before=self.quiet_before)
        except base.UnreadableTranscript as error:
            yield FileReport(file=entry.path, error=str(error))
            return
        yield from self._transcript(entry.path, transcript)

    def _importer(self, found: files.Found) -> base.Importer | None:
        """A format that the caller chose is believed for a file that it named; in a folder other files lie beside."""
        if self.importer is None:
            return importers.detect(found.path)
        return self.importer if found.named or importers.detect(found.path) is self.importer else None

    def _transcript(self, file: Path, transcript: base.Transcript) -> Iterator[FileReport]:
        skipped = transcript.skipped
        if not transcript.sessions:
            yield FileReport(file=file, skipped=skipped)
        for imported in transcript.sessions:
            report = self._imported(FileReport(file=file, session=imported.session_id), imported)
            # Lines belong to the file, not to a session: they are told once.
            yield replace(report, skipped=[*skipped, *report.skipped])
            skipped = ()

    def _imported(self, report: FileReport, imported: base.ImportedSession) -> FileReport:
        try:
            session = _session(self.agent, imported)
            self._note(session, imported)
            for batch in _batches(imported.messages):
                report = self._batch(report, session, batch, self._said_at(report.file, imported))
        except DataError:
            return replace(report, error="The database cannot hold a message of it.")
        except AgentMemoryError as error:
            return replace(report, error=str(error))
        return report

    def _note(self, session: Session, imported: base.ImportedSession) -> None:
        self.met.add(session.pk)
        if imported.last_record_at is None:
            self.untimed.add(session.pk)

    def _said_at(self, file: Path, imported: base.ImportedSession) -> datetime:
        """When the session was last heard of: by its records, else by its file. Clocks elsewhere may be ahead."""
        try:
            modified = datetime.fromtimestamp(file.stat().st_mtime, tz=UTC)
        except (OSError, OverflowError, ValueError):
            modified = self.now
        return min(imported.last_record_at or modified, self.now)

    def _batch(
        self, report: FileReport, session: Session, batch: Sequence[base.ImportedMessage], said_at: datetime
    ) -> FileReport:
        """Append `batch` in one transaction.

        Where it does not fit what is stored, it is fitted; another import of the same file may append meanwhile, so
        that it has to be fitted once more.
        """
        fitted = grown.Fitted(messages=list(batch))
        for _ in range(_FITTINGS):
            try:
                return _appended(report, session, fitted, said_at)
            except UidConflict:
                fitted = grown.fit(session=session, messages=batch)
        return _appended(report, session, fitted, said_at)

    def finish(self) -> None:
        """Finish what is quiet among the sessions that were met; one of no known time is taken for quiet (R6)."""
        quiet = Q(quiet_since__lte=self.quiet_before) | Q(pk__in=self.untimed)
        unfinished = Session.objects.unfinished().filter(quiet, pk__in=self.met)
        for session_id in unfinished.values_list("pk", flat=True):
            transcripts.finish(session_id=session_id)


def _unused(path: Path, reason: str, *, harmless: bool) -> FileReport:
    if harmless:
        return FileReport(file=path, skipped=[base.Skipped(line=0, reason=reason)])
    return FileReport(file=path, error=reason[:1].upper() + reason[1:] + ".")


def _session(agent: Agent, imported: base.ImportedSession) -> Session:
    """The session of `imported`, touched only where it is new or says something else of itself than before.

    Metadata that came from elsewhere stays.
    """
    session = Session.objects.filter(agent=agent, name=imported.session_id).first()
    metadata = {**(session.metadata if session else {}), **imported.metadata}
    title = imported.title or (session.title if session else "")
    if session is None or (session.title, session.metadata) != (title, metadata):
        session, _ = sessions.adopt(agent=agent, name=imported.session_id, title=title, metadata=metadata)
    return session


def _batches(messages: Sequence[base.ImportedMessage]) -> Iterator[list[base.ImportedMessage]]:
    batch: list[base.ImportedMessage] = []
    characters = 0
    for message in messages:
        batch.append(message)
        characters += len(json.dumps(message.content))
        if len(batch) == BATCH_MESSAGES or characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _appended(report: FileReport, session: Session, fitted: grown.Fitted, said_at: datetime) -> FileReport:
    done = transcripts.append(session=session, messages=_new(fitted.messages), said_at=said_at)
    return replace(
        report,
        new=report.new + done.accepted,
        known=report.known + done.duplicates + fitted.known,
        skipped=[*report.skipped, *fitted.skipped],
    )


def _new(messages: Sequence[base.ImportedMessage]) -> list[transcripts.NewMessage]:
    return [
        transcripts.NewMessage(
            uid=message.uid,
            type=message.type,
            content=message.content,
            occurred_at=message.occurred_at,
            parent_tool_use_id=message.parent_tool_use_id,
            subtype=message.subtype,
            is_error=message.is_error,
            ends_turn=message.ends_turn,
        )
        for message in messages
    ]
