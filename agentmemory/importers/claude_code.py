"""Claude Code's session files: `~/.claude/projects/PROJECT/SESSION.jsonl`.

What is made of them, where more than one way was open:

- Only `user` and `assistant` records are messages. The others (snapshots, progress, attachments, repeated prompts,
  summaries, system notes) are not, and are passed over in silence. So is a prompt that stands in a
  `queue-operation` alone: most of them come again as a `user` record, and nothing tells which do not.
- The session is the one that the line names, not the file: a file may hold lines of several.
- An answer is written as one line a content block, under one `message.id`: one message, its blocks in order, its uid
  that id. Lines of other messages may stand between. A `user` record is one message, its uid the record's `uuid`.
- What a person did not type stays in the transcript and is no speech: `isMeta`, compaction summaries, results of
  tools, messages of other origin, and errors and placeholders that the client wrote in the model's place are named by
  a subtype; echoes and reminders are known by their text (`agentmemory.speech`).
- Everything is kept in the order of the file, also turns that a rewind left behind: they were said, an import that
  took them back would need the database, and parallel tool calls fork the tree of records just the same.
- A sidechain within its session's file stays there, under its agent as `parent_tool_use_id`. A file that is nothing
  but a subagent's thread names its parent's session; it is left out, so that it is not woven into that one's order.
  What the subagent reported is in its parent's transcript, as the result of a tool.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from agentmemory.importers import assembly, base, bounds, ids, lines, skips

_LOOK_AT = 200
"""Lines that recognising a file may read."""

_MESSAGES = frozenset({"user", "assistant"})
_ALONE = {"summary": "leafUuid", "file-history-snapshot": "snapshot"}
_TITLES = {"custom-title": "customTitle", "ai-title": "aiTitle"}
_FACTS = {"cwd": "cwd", "gitBranch": "git_branch", "version": "version"}


class ClaudeCode:
    """See the module."""

    name = "claude_code"

    def recognises(self, path: Path) -> bool:
        found = (record for _, record in itertools.islice(lines.read(path), _LOOK_AT))
        return any(isinstance(record, dict) and _is_ours(record) for record in found)

    def read(self, path: Path, *, settled_before: datetime | None = None) -> base.Transcript:
        try:
            return _Reading().whole(path, settled_before=settled_before)
        except OSError as error:
            raise base.UnreadableTranscript(f"The file does not open: {error.strerror or error}.") from error


def _is_ours(record: lines.Object) -> bool:
    kind = record.get("type")
    if not isinstance(kind, str):
        return False
    if isinstance(record.get("sessionId"), str):
        return kind not in _MESSAGES or "message" in record
    return kind in _ALONE and _ALONE[kind] in record


class _Reading:
    """One file, while it is read."""

    def __init__(self) -> None:
        self.sessions: dict[str, assembly.SessionDraft] = {}
        self.skipped = skips.Skips()
        self.lines = 0
        self.ours = 0

    def whole(self, path: Path, *, settled_before: datetime | None) -> base.Transcript:
        for number, record in lines.read(path):
            self.lines += 1
            if isinstance(record, base.Skipped):
                self.skipped.add(record)
                continue
            self.ours += _is_ours(record)
            if reason := self._take(number, record):
                self.skipped.add(base.Skipped(line=number, reason=reason))
        if self.lines and not self.ours:
            raise base.UnreadableTranscript("No line of the file is a record of Claude Code.")
        return base.Transcript(sessions=tuple(self._finished(settled_before)), skipped=tuple(self.skipped))

    def _finished(self, settled_before: datetime | None) -> Iterator[base.ImportedSession]:
        for draft in self.sessions.values():
            session = draft.finished(settled_before=settled_before)
            if isinstance(session, base.Skipped):
                self.skipped.add(session)
            elif session.messages:
                yield session

    def _take(self, number: int, record: lines.Object) -> str:
        """Use one record. Gives the reason when it should have been a message and could not be."""
        kind = record.get("type")
        if not isinstance(kind, str):
            return "no type"
        session = self._session(record)
        if session and kind in _TITLES:
            session.title = bounds.line(record.get(_TITLES[kind]), limit=assembly.MAX_TITLE) or session.title
        if session:
            session.saw(bounds.moment(record.get("timestamp")))
        if kind not in _MESSAGES:
            return ""
        return _message(session, number, record, kind) if session else "no usable sessionId"

    def _session(self, record: lines.Object) -> assembly.SessionDraft | None:
        name = ids.session(record.get("sessionId"))
        if not name:
            return None
        if name not in self.sessions:
            self.sessions[name] = assembly.SessionDraft(name, metadata={"format": ClaudeCode.name})
        session = self.sessions[name]
        for theirs, ours in _FACTS.items():
            if ours not in session.metadata and (fact := bounds.line(record.get(theirs), limit=500)):
                session.metadata[ours] = fact
        return session


def _message(session: assembly.SessionDraft, number: int, record: lines.Object, kind: str) -> str:
    message = record.get("message")
    if not isinstance(message, dict):
        return "its message is no object"
    value = message.get("content")
    if not isinstance(value, str | list):
        return "its message has no content"
    if not value:
        return ""
    content = bounds.content(value)
    grows = kind == "assistant"
    draft = assembly.Draft(
        uid=_uid(message.get("id") if grows else None, record, content),
        type=kind,
        content=[] if grows else content,
        occurred_at=bounds.moment(record.get("timestamp")),
        subtype=_subtype(record, message, content),
        parent_tool_use_id=_sidechain(record),
        is_error=record.get("isApiErrorMessage") is True,
        first=number,
        last=number,
        grows=grows,
    )
    if not grows:
        return session.add(draft, renamed=True)
    return session.grow(draft, [{"type": "text", "text": content}] if isinstance(content, str) else content)


def _uid(own: object, record: lines.Object, content: base.Content) -> str:
    """The message's own id, else the record's `uuid`, else one made from what tells the record from others."""
    told_by = (record.get("type"), str(record.get("timestamp")), str(record.get("parentUuid")), content)
    return ids.uid(own) or ids.uid(record.get("uuid")) or ids.made("line", *told_by)


def _subtype(record: lines.Object, message: lines.Object, content: base.Content) -> str:
    if record.get("isApiErrorMessage") is True:
        return "api_error"
    if message.get("model") == "<synthetic>" or record.get("isSynthetic") is True:
        return "synthetic"
    if record.get("isCompactSummary") is True:
        return "compact_summary"
    if "toolUseResult" in record or _is_tool_result(content):
        return "tool_result"
    if record.get("isMeta") is True or record.get("isVisibleInTranscriptOnly") is True:
        return "meta"
    origin = record.get("origin")
    return "notification" if isinstance(origin, dict) and origin.get("kind", "human") != "human" else ""


def _is_tool_result(content: base.Content) -> bool:
    """Whether there is nothing but results of tools in it; words beside them are somebody's."""
    blocks = () if isinstance(content, str) else content
    return bool(blocks) and all(isinstance(block, dict) and block.get("type") == "tool_result" for block in blocks)


def _sidechain(record: lines.Object) -> str:
    """The agent that a record of a subagent belongs to; empty for the main thread."""
    if record.get("isSidechain") is not True:
        return ""
    return bounds.line(record.get("agentId"), limit=200) or "sidechain"
