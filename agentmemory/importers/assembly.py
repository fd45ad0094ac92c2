"""Putting a session together from records: no message twice, turns marked, a tail that may still grow held back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from agentmemory import speech
from agentmemory.importers import base, bounds

MAX_TITLE = 200

OWN_PROMPT = "an extraction prompt of this product, no conversation"
SUBAGENT = "the thread of a subagent, no conversation of its own"


@dataclass(kw_only=True)
class Draft:
    """A message while its file is read. `first` and `last` are the lines that it began and last grew on."""

    uid: str
    type: str
    content: base.Content
    occurred_at: datetime | None
    subtype: str = ""
    parent_tool_use_id: str = ""
    is_error: bool = False
    first: int
    last: int
    grows: bool = False
    ends_turn: bool = False
    seen: set[str] = field(default_factory=set)

    def says_something(self) -> bool:
        return speech.is_speech(
            type=self.type,
            subtype=self.subtype,
            text=speech.visible_text(self.content),
            parent_tool_use_id=self.parent_tool_use_id,
        )


class SessionDraft:
    """One session while its file is read."""

    def __init__(self, session_id: str, *, metadata: dict[str, str]) -> None:
        self.session_id = session_id
        self.metadata = metadata
        self.title = ""
        self.last_record_at: datetime | None = None
        self._drafts: dict[str, Draft] = {}
        self._copies: set[tuple[datetime, str]] = set()

    def saw(self, moment: datetime | None) -> None:
        """A record of this session was written at `moment`."""
        if moment and (self.last_record_at is None or moment > self.last_record_at):
            self.last_record_at = moment

    def add(self, draft: Draft, *, renamed: bool = False) -> str:
        """Take a message that is whole in one record. Gives the reason when it cannot be taken.

        Seen before under its uid, it is a copy and changes nothing: clients write parts of their history again. Where
        copies may be `renamed`, one under another uid with the same time, to the millisecond, is a copy as well.
        """
        digest = _digest([draft.type, draft.parent_tool_use_id, draft.content])
        known = self._drafts.get(draft.uid)
        if known:
            return "" if digest in known.seen else "its id is taken by another message"
        if renamed and draft.occurred_at:
            copy = (draft.occurred_at, digest)
            if copy in self._copies:
                return ""
            self._copies.add(copy)
        draft.seen.add(digest)
        self._drafts[draft.uid] = draft
        return ""

    def grow(self, draft: Draft, blocks: Sequence[object]) -> str:
        """Take a record that holds some blocks of a message; records of one uid are one message.

        Blocks that the message has already are copies. Gives the reason when it cannot be taken.
        """
        known = self._drafts.setdefault(draft.uid, draft)
        if not known.grows or known.type != draft.type or isinstance(known.content, str):
            return "its id is taken by another message"
        for block in blocks:
            digest = _digest(block)
            if digest not in known.seen:
                known.seen.add(digest)
                known.content.append(block)
                known.last = draft.last
        return ""

    def finished(self, *, settled_before: datetime | None) -> base.ImportedSession | base.Skipped:
        """The session as it stands: what of it will not change any more, or why it is left out as a whole."""
        drafts = list(self._drafts.values())
        _mark_turns(drafts)
        if drafts and all(draft.parent_tool_use_id for draft in drafts):
            return base.Skipped(line=0, reason=SUBAGENT)
        if own := _own_prompt(drafts):
            return base.Skipped(line=own.first, reason=OWN_PROMPT)
        if settled_before and self.last_record_at and self.last_record_at >= settled_before:
            drafts = _whole(drafts)
        return base.ImportedSession(
            session_id=self.session_id,
            title=self.title or _title(drafts),
            messages=tuple(_message(draft) for draft in drafts),
            last_record_at=self.last_record_at,
            metadata=self.metadata,
        )


def _own_prompt(drafts: Sequence[Draft]) -> Draft | None:
    """The extraction prompt of this product, if the session begins with one (D4)."""
    for draft in drafts:
        if draft.type == "user" and not draft.parent_tool_use_id:
            if speech.EXTRACTION_MARKER in speech.visible_text(draft.content):
                return draft
            if draft.says_something():
                return None
    return None


def _mark_turns(drafts: Sequence[Draft]) -> None:
    """A turn ends with the last answer before the person speaks again (R6)."""
    answer: Draft | None = None
    for draft in drafts:
        if not draft.says_something():
            continue
        if draft.type == "user" and answer:
            answer.ends_turn = True
        answer = draft if draft.type == "assistant" else None


def _whole(drafts: Sequence[Draft]) -> list[Draft]:
    """`drafts` up to the first that may still grow.

    A client asks its model one thing after the other: an answer is whole once the main thread has gone on, with
    another answer or a word of the person, after the last line of it. What follows one that is not waits with it, so
    that messages keep their order.
    """
    gone_on = max((draft.first for draft in drafts if _goes_on(draft)), default=0)
    growing = [draft.first for draft in drafts if draft.grows and draft.last >= gone_on]
    end = min(growing, default=None)
    return [draft for draft in drafts if end is None or draft.first < end]


def _goes_on(draft: Draft) -> bool:
    return not draft.parent_tool_use_id and (draft.grows or (draft.type == "user" and draft.says_something()))


def _title(drafts: Sequence[Draft]) -> str:
    """The first line of the first thing that the person said."""
    prompt = next((draft for draft in drafts if draft.type == "user" and draft.says_something()), None)
    return bounds.line(speech.spoken(speech.visible_text(prompt.content)), limit=MAX_TITLE) if prompt else ""


def _message(draft: Draft) -> base.ImportedMessage:
    return base.ImportedMessage(
        uid=draft.uid,
        type=draft.type,
        content=draft.content,
        occurred_at=draft.occurred_at,
        subtype=draft.subtype,
        parent_tool_use_id=draft.parent_tool_use_id,
        is_error=draft.is_error,
        ends_turn=draft.ends_turn,
    )


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
