"""Answers that grew after they were imported: what is stored stands (R2), the rest follows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from agentmemory.importers import base
from agentmemory.models import Message, Session
from agentmemory.services import redaction, transcripts


@dataclass(kw_only=True)
class Fitted:
    """`messages` fit what is stored. `known` counts those left out since more of them is stored already."""

    messages: list[base.ImportedMessage] = field(default_factory=list)
    known: int = 0
    skipped: list[base.Skipped] = field(default_factory=list)


def fit(*, session: Session, messages: Sequence[base.ImportedMessage]) -> Fitted:
    """`messages` without a conflict with what the session holds now.

    One that has grown is taken apart: the blocks that are stored, as they are stored, and the others in a message of
    their own. One whose uid is taken by other content is skipped, and the others are not held up by it.
    """
    rows = {row.uid: row for row in Message.objects.filter(session=session, uid__in=[m.uid for m in messages])}
    fitted = Fitted()
    for message in messages:
        row = rows.get(message.uid)
        if row is None or _is(row, message):
            fitted.messages.append(message)
        else:
            _take_apart(fitted, session, row, message)
    return fitted


def _take_apart(fitted: Fitted, session: Session, row: Message, message: base.ImportedMessage) -> None:
    parts = _parts(session, row, message)
    if parts is None:
        fitted.skipped.append(base.Skipped(line=0, reason=f"message {message.uid}: its id is taken by other content"))
    elif not parts:
        fitted.known += 1
    else:
        fitted.messages += parts


def _parts(session: Session, row: Message | None, message: base.ImportedMessage) -> list[base.ImportedMessage] | None:
    """`message` in the parts that are stored and one of what is new. Empty: less than what is stored. None: another."""
    parts: list[base.ImportedMessage] = []
    rest, taken = message, 0
    while row is not None:
        if isinstance(rest.content, str) or not isinstance(row.content, list) or not row.content:
            return None
        part = replace(rest, content=rest.content[: len(row.content)], ends_turn=False)
        if not _is(row, part):
            return [] if _is_less(row, rest) else None
        parts.append(part)
        taken += len(row.content)
        if len(row.content) == len(rest.content):
            return [*parts[:-1], replace(part, ends_turn=message.ends_turn)]
        rest = base.continuation(message, after=taken)
        row = Message.objects.filter(session=session, uid=rest.uid).first()
    return [*parts, rest]


def _is(row: Message, message: base.ImportedMessage) -> bool:
    return row.type == message.type and transcripts.same_content(row.digest, message.content)


def _is_less(row: Message, message: base.ImportedMessage) -> bool:
    """Whether `message` is the beginning of what is stored: an older copy of its file."""
    beginning = row.content[: len(message.content)]
    return row.type == message.type and beginning == redaction.redact(message.content).value
