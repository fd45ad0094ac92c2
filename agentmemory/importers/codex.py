"""Codex' session files: `~/.codex/sessions/YEAR/MONTH/DAY/rollout-TIME-ID.jsonl`.

What is made of them, where more than one way was open:

- What is said stands up to three times: as an event, as an item that the model was sent or gave, and the last words
  of a task in its end once more; any of them may be missing. There are no ids. The first, second, … time that a record
  of one kind holds the same words of the same speaker is the first, second, … time that they were said.
- A user's item without its event was put in by the client, in a file that has such events at all. Until the event may
  no longer come, the item may still turn into a prompt.
- A task's end ends a turn.
- Uses of tools and their results stay in the transcript, and are no speech; what the model was told beside the
  conversation is of type `system`. Reasoning is left out: it is encrypted.
- A thread that goes on from another one, or was begun by it, repeats that one's records first, older than itself.
  They are passed over. It has an id of its own and is a session of its own, also where an agent began it.
- Everything is kept in the order of the file, also turns that were rolled back.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from agentmemory.importers import assembly, base, bounds, codex_talk, ids, lines, skips

_LOOK_AT = 20
"""Lines that recognising a file may read."""

_KINDS = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_FACTS = {"cwd": "cwd", "cli_version": "version"}
_NAMED = re.compile(r"rollout-.*-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")


class Codex:
    """See the module."""

    name = "codex"

    def recognises(self, path: Path) -> bool:
        found = (record for _, record in itertools.islice(lines.read(path), _LOOK_AT))
        return any(isinstance(record, dict) and _is_ours(record) for record in found)

    def read(self, path: Path, *, settled_before: datetime | None = None) -> base.Transcript:
        try:
            return _Reading(path).whole(settled_before=settled_before)
        except OSError as error:
            raise base.UnreadableTranscript(f"The file does not open: {error.strerror or error}.") from error


def _is_ours(record: lines.Object) -> bool:
    return record.get("type") in _KINDS and isinstance(record.get("payload"), dict)


class _Reading:
    """One file, while it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.skipped = skips.Skips()
        self.talk: codex_talk.Talk | None = None
        self.repeats_before: datetime | None = None

    def whole(self, *, settled_before: datetime | None) -> base.Transcript:
        read = 0
        for number, record in lines.read(self.path):
            read += 1
            if isinstance(record, base.Skipped):
                self.skipped.add(record)
            elif reason := self._take(number, record):
                self.skipped.add(base.Skipped(line=number, reason=reason))
        if read and self.talk is None:
            raise base.UnreadableTranscript("No line of the file names a session of Codex.")
        return base.Transcript(sessions=tuple(self._finished(settled_before)), skipped=tuple(self.skipped))

    def _finished(self, settled_before: datetime | None) -> Iterator[base.ImportedSession]:
        session = self.talk.finished(settled_before) if self.talk else None
        if isinstance(session, base.Skipped):
            self.skipped.add(session)
        elif session and session.messages:
            yield session

    def _take(self, number: int, record: lines.Object) -> str:
        """Use one record. Gives the reason when it should have been a message and could not be."""
        kind, payload = record.get("type"), record.get("payload")
        if kind not in _KINDS:
            return "" if isinstance(kind, str) else "no type"
        if not isinstance(payload, dict):
            return "no payload"
        line = codex_talk.Line(number=number, moment=bounds.moment(record.get("timestamp")), payload=payload)
        if self.talk is None:
            self._begin(line, payload if kind == "session_meta" else {})
        if self.talk is None:
            return "no session is named"
        self.talk.session.saw(line.moment)
        if self.repeats_before and line.moment and line.moment < self.repeats_before:
            return ""
        return self.talk.take(line, str(kind))

    def _begin(self, line: codex_talk.Line, meta: lines.Object) -> None:
        """The first line names the session; where that is damaged, the file's name does."""
        by_file = _NAMED.fullmatch(self.path.stem)
        name = ids.session(meta.get("id")) or (by_file[1] if by_file else "")
        if not name:
            return
        metadata = {"format": Codex.name}
        metadata |= {
            ours: fact for theirs, ours in _FACTS.items() if (fact := bounds.line(meta.get(theirs), limit=500))
        }
        if branch := bounds.line(_within(meta, "git").get("branch"), limit=500):
            metadata["git_branch"] = branch
        if parent := _parent(meta):
            metadata["parent_session"] = parent
            self.repeats_before = bounds.moment(meta.get("timestamp")) or line.moment
        self.talk = codex_talk.Talk(assembly.SessionDraft(name, metadata=metadata))


def _within(value: lines.Object, key: str) -> lines.Object:
    inner = value.get(key)
    return inner if isinstance(inner, dict) else {}


def _parent(meta: lines.Object) -> str:
    spawned = _within(_within(_within(meta, "source"), "subagent"), "thread_spawn")
    return ids.session(meta.get("forked_from_id")) or ids.session(spawned.get("parent_thread_id"))
