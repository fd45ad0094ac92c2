"""A plain list of messages, in the shapes of Anthropic's and OpenAI's interfaces: what programs keep of a run.

A JSON list of messages, an object with such a list under `messages`, or one message a line. What is made of it, where
more than one way was open:

- Nothing names the session, unless the object does (`session_id`, `conversation_id`, `id`): it is told by how the
  conversation began, up to its first answer. A file that was moved or has grown is the same session; one without an
  answer is left out until it has one.
- A message is told by its place in the list, unless it has an id. Where another message stood at that place, it is
  reported when it is stored.
- Who speaks is the role's word: programs that give a tool's output the role `user` cannot be told from people.
- Without times, a session counts as quiet.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from agentmemory.importers import assembly, base, bounds, documents, ids, lines, openai, skips

_LOOK_AT = 20
"""Messages that recognising a list may look at."""

_SPEAKERS = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "user",
    "function": "user",
}
_NAMES = ("session_id", "conversation_id", "id")
_TIMES = ("timestamp", "created_at")

Object = dict[str, object]


class MessageList:
    """See the module."""

    name = "message_list"

    def recognises(self, path: Path) -> bool:
        return _is_of_lines(path) or _is_list(_entries(documents.peek(path)))

    def read(self, path: Path, *, settled_before: datetime | None = None) -> base.Transcript:
        try:
            entries, name, skipped = _opened(path)
        except OSError as error:
            raise base.UnreadableTranscript(f"The file does not open: {error.strerror or error}.") from error
        if not _is_list(entries):
            raise base.UnreadableTranscript("The file is no list of messages.")
        return _transcript(entries, name, skipped, settled_before)


def _opened(path: Path) -> tuple[Sequence[object], str, skips.Skips]:
    """The messages of a file, the session that it names, and the lines of it that are none."""
    skipped = skips.Skips()
    if not _is_of_lines(path):
        document = documents.read(path)
        return _entries(document), _name(document), skipped
    entries: list[object] = []
    for _, entry in lines.read(path):
        if isinstance(entry, base.Skipped):
            skipped.add(entry)
        else:
            entries.append(entry)
    return entries, "", skipped


def _is_of_lines(path: Path) -> bool:
    """Whether each line is a message. In a document that is written in lines, the first one is none."""
    first = [entry for _, entry in itertools.islice(lines.read(path), _LOOK_AT)]
    return bool(first) and isinstance(first[0], dict) and _is_list(first)


def _entries(document: object) -> Sequence[object]:
    """The messages of a document. A prompt that stands beside them comes first, as Anthropic's interface has it."""
    if not isinstance(document, dict):
        return document if isinstance(document, list) else []
    messages = document.get("messages")
    system = document.get("system")
    before = [{"role": "system", "content": system}] if isinstance(system, str | list) and system else []
    return [*before, *messages] if isinstance(messages, list) else []


def _name(document: object) -> str:
    names = (ids.session(document.get(key)) for key in _NAMES) if isinstance(document, dict) else ()
    return next((name for name in names if name), "")


def _is_list(entries: Sequence[object]) -> bool:
    """Whether each of the first entries is a message or an item, and one of them a word of someone."""
    beginning = [entry for entry in entries[:_LOOK_AT] if not isinstance(entry, base.Skipped)]
    kinds = [_speaker(entry) for entry in beginning]
    return all(kinds) and bool({"user", "assistant"}.intersection(kinds))


def _speaker(entry: object) -> str:
    """Who speaks in a message or an item; empty for what is neither."""
    if not isinstance(entry, dict):
        return ""
    kind, role = entry.get("type"), entry.get("role")
    if role is None:
        return "user" if openai.is_output(kind) else "assistant" if openai.is_call(kind) or kind == "reasoning" else ""
    known = _SPEAKERS.get(role, "") if isinstance(role, str) else ""
    return known if "content" in entry or "tool_calls" in entry or "function_call" in entry else ""


def _transcript(
    entries: Sequence[object], name: str, skipped: skips.Skips, settled_before: datetime | None
) -> base.Transcript:
    drafts = list(_drafts(entries, skipped))
    name = name or _told_by_beginning(drafts)
    if not name:
        skipped.add(base.Skipped(line=0, reason="there is no answer in it yet, and nothing names its session"))
        return base.Transcript(sessions=(), skipped=tuple(skipped))
    session = assembly.SessionDraft(name, metadata={"format": MessageList.name})
    for draft in drafts:
        session.saw(draft.occurred_at)
        if reason := session.add(draft):
            skipped.add(base.Skipped(line=0, reason=f"message {draft.first}: {reason}"))
    finished = session.finished(settled_before=settled_before)
    if isinstance(finished, base.Skipped):
        skipped.add(base.Skipped(line=0, reason=finished.reason))
        return base.Transcript(sessions=(), skipped=tuple(skipped))
    return base.Transcript(sessions=(finished,), skipped=tuple(skipped))


def _told_by_beginning(drafts: Sequence[assembly.Draft]) -> str:
    for number, draft in enumerate(drafts, start=1):
        if draft.type == "assistant" and draft.says_something():
            return ids.made("list", *([one.type, one.content] for one in drafts[:number]))
    return ""


def _drafts(entries: Sequence[object], skipped: skips.Skips) -> Iterator[assembly.Draft]:
    for number, entry in enumerate(entries, start=1):
        speaker = _speaker(entry)
        if not isinstance(entry, dict) or not speaker:
            skipped.add(base.Skipped(line=0, reason=f"message {number}: no message"))
        elif blocks := bounds.content(_blocks(entry)):
            yield assembly.Draft(
                uid=ids.uid(entry.get("id")) or f"message-{number}",
                type=speaker,
                content=blocks,
                occurred_at=next((moment for key in _TIMES if (moment := _moment(entry.get(key)))), None),
                subtype="tool_result" if _is_result(entry) else "",
                first=number,
                last=number,
            )


def _is_result(entry: Object) -> bool:
    return entry.get("role") in ("tool", "function") or openai.is_output(entry.get("type"))


def _moment(value: object) -> datetime | None:
    return bounds.moment(value) or bounds.epoch(value)


def _blocks(entry: Object) -> list[object]:
    kind = entry.get("type")
    if entry.get("role") in ("tool", "function"):
        return [openai.tool_result(call_id=entry.get("tool_call_id"), output=entry.get("content"))]
    if openai.is_output(kind):
        return [openai.output(entry)]
    if openai.is_call(kind):
        return [openai.call(entry)]
    return [] if kind == "reasoning" else [*openai.blocks(entry.get("content")), *openai.calls(entry)]
