"""What every importer gives: sessions as they stand in a file, and what of the file could not be used.

To add a format, write one module with a class that fits `Importer`, and name it in `agentmemory.importers.FORMATS`.
Reading lines (`lines`), bounding what a block may hold (`bounds`) and putting a session together (`assembly`) are done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

from agentmemory import errors

Content = str | list[object]
"""What a message holds: plain text, or a list of blocks, as JSON has them."""


class UnreadableTranscript(errors.AgentMemoryError):
    """Nothing of the file can be read as a transcript: it does not open, or no line of it is of the format."""


@dataclass(frozen=True, kw_only=True)
class ImportedMessage:
    """One message, the same however often its file is read and however far the file has grown."""

    uid: str
    type: str
    content: Content
    occurred_at: datetime | None
    subtype: str = ""
    parent_tool_use_id: str = ""
    is_error: bool = False
    ends_turn: bool = False
    """It is the last answer before the person spoke again (R6). May become true later, never false again."""


@dataclass(frozen=True, kw_only=True)
class ImportedSession:
    """One conversation, or as much of it as will not change any more, in the order of the file."""

    session_id: str
    title: str
    messages: Sequence[ImportedMessage]
    last_record_at: datetime | None
    """The newest time that the file names for this session, UTC. From then on it was quiet (R6)."""

    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A line that was not used, and why. `line` counts from 1; 0 means the file as a whole."""

    line: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """All that one file holds."""

    sessions: Sequence[ImportedSession]
    skipped: Sequence[Skipped]


class Importer(Protocol):
    """Reads one format."""

    @property
    def name(self) -> str:
        """What `--format` calls it."""

    def recognises(self, path: Path) -> bool:
        """Whether the beginning of the file is of this format. Raises `OSError` where the file does not open."""

    def read(self, path: Path, *, settled_before: datetime | None = None) -> Transcript:
        """Everything in the file, bad lines reported and passed over. Raises `UnreadableTranscript`.

        A file may still be written to. Of a session whose last record is newer than `settled_before`, the tail that
        may still grow is held back: a later reading gives it whole. Without it nothing is held back.
        """


def continuation(message: ImportedMessage, *, after: int) -> ImportedMessage:
    """What `message` holds beyond its first `after` blocks, as a message of its own.

    For an answer that was imported when it was thought whole, and grew nevertheless: what is stored stands (R2), the
    rest follows under a uid that is made from the first one and so is the same each time.
    """
    if isinstance(message.content, str):
        raise ValueError("Only a message of blocks can have grown.")
    return replace(message, uid=f"{message.uid}+{after}", content=message.content[after:])
