"""Claude's exports: `conversations.json` of the archive that one gets by mail, or one conversation of it.

What is made of them, where more than one way was open:

- Where messages name their parents, a conversation is a tree: prompts are edited, answers made anew. Imported is the
  path to `current_leaf_message_uuid`, else to the newest end. Without parents it is the list.
- What was said are the text blocks of `content`. `text` beside them says it again, with placeholders for what could
  not be shown; it counts in older exports, which have nothing else.
- A file that was attached is a block that names it and holds what was read from it; nobody said that.
- A conversation whose messages were deleted is empty, and is no session.
- Results of tools stand within answers here, and contribute no words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from agentmemory.importers import assembly, base, bounds, branches, exports, ids, skips

_SPEAKERS = {"human": "user", "user": "user", "assistant": "assistant", "system": "system"}
_NO_PARENT = "00000000-0000-4000-8000-000000000000"

Object = dict[str, object]


class ClaudeExport:
    """See the module."""

    name = "claude_export"

    def recognises(self, path: Path) -> bool:
        document = exports.peek(path, "chat_messages")
        return document is not None and any(_is_conversation(entry) for entry in exports.conversations(document)[:20])

    def read(self, path: Path, *, settled_before: datetime | None = None) -> base.Transcript:
        return exports.read(path, is_one=_is_conversation, take=_session, settled_before=settled_before)


def _is_conversation(entry: object) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("chat_messages"), list) and "uuid" in entry


def _session(entry: Object, skipped: skips.Skips) -> assembly.SessionDraft | str:
    name = ids.session(entry.get("uuid"))
    if not name:
        return "it has no usable uuid"
    session = assembly.SessionDraft(name, metadata={"format": ClaudeExport.name})
    session.title = bounds.line(entry.get("name"), limit=assembly.MAX_TITLE)
    for key in ("created_at", "updated_at"):
        session.saw(bounds.moment(entry.get(key)))
    for number, message in enumerate(_messages(entry), start=1):
        session.saw(bounds.moment(message.get("created_at")))
        if reason := _take(session, number, message):
            skipped.add(base.Skipped(line=0, reason=f"conversation {name}, message {number}: {reason}"))
    return session


def _messages(entry: Object) -> Sequence[Object]:
    """The messages of the path that the conversation is on."""
    found = [message for message in exports.entries(entry, "chat_messages") if isinstance(message, dict)]
    named = {str(message.get("uuid")): message for message in found}
    parents = {name: _parent(message) for name, message in named.items()}
    # Parents that lead nowhere say nothing: such a list is in order.
    if not any(parent in named for parent in parents.values()):
        return found
    current = entry.get("current_leaf_message_uuid")
    leaf = current if isinstance(current, str) and current in parents else branches.newest_leaf(parents)
    return [named[name] for name in branches.path(parents, leaf)]


def _parent(message: Object) -> str | None:
    parent = message.get("parent_message_uuid")
    return parent if isinstance(parent, str) and parent != _NO_PARENT else None


def _take(session: assembly.SessionDraft, number: int, message: Object) -> str:
    sender = message.get("sender")
    speaker = _SPEAKERS.get(sender) if isinstance(sender, str) else None
    if speaker is None:
        return "its sender is unknown"
    blocks = bounds.content(list(_blocks(message)))
    if not blocks:
        return ""
    told_by = (sender, message.get("created_at"), blocks)
    return session.add(
        assembly.Draft(
            uid=ids.uid(message.get("uuid")) or ids.made("message", *told_by),
            type=speaker,
            content=blocks,
            occurred_at=bounds.moment(message.get("created_at")),
            first=number,
            last=number,
        )
    )


def _blocks(message: Object) -> Iterator[object]:
    content = [block for block in exports.entries(message, "content") if isinstance(block, dict)]
    for block in content:
        if block.get("type") != "text" or block.get("text"):
            yield block
    text = message.get("text")
    if not content and isinstance(text, str) and text.strip():
        yield {"type": "text", "text": text}
    for key in ("attachments", "files", "files_v2"):
        for file in exports.entries(message, key):
            if isinstance(file, dict):
                yield {**file, "type": "attachment"}
