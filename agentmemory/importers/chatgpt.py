"""ChatGPT's exports: `conversations.json` of the archive that one gets by mail, or one conversation of it.

What is made of them, where more than one way was open:

- A conversation is a tree: prompts are edited, answers made anew. Imported is the path to `current_node`, which is what
  the person sees. Without one that leads anywhere it is the path to the newest end. What an earlier import took from a
  path that was left since stays: it was said.
- A message is one message, its uid its id. Nodes without a message, with which deleted ones are marked too, are none.
- What a person did not type is kept and is no speech: hidden messages, their own instructions that come along, and
  messages of tools, by a subtype; what the assistant says to a tool and thinks, as blocks that are no text.
- Words that were spoken are text. Pictures, sounds and files are blocks that name them.
- Without times, a conversation counts as quiet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

from agentmemory.importers import assembly, base, bounds, branches, exports, ids, openai, skips

_SPEAKERS = {"user": "user", "assistant": "assistant", "system": "system", "tool": "user"}
_THOUGHTS = ("thoughts", "reasoning_recap")
_FACTS = {"default_model_slug": "model", "gizmo_id": "gizmo"}

Object = dict[str, object]


class ChatGPT:
    """See the module."""

    name = "chatgpt"

    def recognises(self, path: Path) -> bool:
        document = exports.peek(path, "mapping")
        return document is not None and any(_is_conversation(entry) for entry in exports.conversations(document)[:20])

    def read(self, path: Path, *, settled_before: datetime | None = None) -> base.Transcript:
        return exports.read(path, is_one=_is_conversation, take=_session, settled_before=settled_before)


def _is_conversation(entry: object) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("mapping"), dict):
        return False
    return all(isinstance(node, dict) and "message" in node for node in list(entry["mapping"].values())[:3])


def _session(entry: Object, skipped: skips.Skips) -> assembly.SessionDraft | str:
    name = ids.session(entry.get("conversation_id")) or ids.session(entry.get("id"))
    if not name:
        return "it has no usable id"
    facts = {ours: bounds.line(entry.get(theirs), limit=500) for theirs, ours in _FACTS.items()}
    known = {ours: fact for ours, fact in facts.items() if fact}
    session = assembly.SessionDraft(name, metadata={"format": ChatGPT.name, **known})
    session.title = bounds.line(entry.get("title"), limit=assembly.MAX_TITLE)
    session.saw(bounds.epoch(entry.get("update_time")))
    for number, (node, message) in enumerate(_messages(exports.within(entry, "mapping"), entry), start=1):
        session.saw(bounds.epoch(message.get("create_time")))
        if reason := _take(session, number, node, message):
            skipped.add(base.Skipped(line=0, reason=f"conversation {name}, message {number}: {reason}"))
    return session


def _messages(mapping: Object, entry: Object) -> Iterator[tuple[str, Object]]:
    """The messages of the path that the conversation is on."""
    parents = {node: _parent(value) for node, value in mapping.items()}
    current = entry.get("current_node")
    leaf = current if isinstance(current, str) and current in parents else branches.newest_leaf(parents)
    for node in branches.path(parents, leaf):
        message = exports.within(exports.within(mapping, node), "message")
        if message:
            yield node, message


def _parent(node: object) -> str | None:
    parent = node.get("parent") if isinstance(node, dict) else None
    return parent if isinstance(parent, str) else None


def _take(session: assembly.SessionDraft, number: int, node: str, message: Object) -> str:
    role = exports.within(message, "author").get("role")
    speaker = _SPEAKERS.get(role) if isinstance(role, str) else None
    if speaker is None:
        return "its role is unknown"
    uid = ids.uid(message.get("id")) or ids.uid(node)
    if not uid:
        return "it has no usable id"
    blocks = bounds.content(list(_blocks(message)))
    if not blocks:
        return ""
    return session.add(
        assembly.Draft(
            uid=uid,
            type=speaker,
            content=blocks,
            occurred_at=bounds.epoch(message.get("create_time")),
            subtype=_subtype(message),
            first=number,
            last=number,
            grows=message.get("status") == "in_progress",
        )
    )


def _subtype(message: Object) -> str:
    metadata = exports.within(message, "metadata")
    kind = exports.within(message, "content").get("content_type")
    if exports.within(message, "author").get("role") == "tool":
        return "tool_result"
    hidden = metadata.get("is_visually_hidden_from_conversation") is True or metadata.get("is_user_system_message")
    return "injected" if hidden or kind == "user_editable_context" or message.get("weight") == 0 else ""


def _blocks(message: Object) -> Iterator[object]:
    content = exports.within(message, "content")
    role = exports.within(message, "author").get("role")
    recipient = message.get("recipient")
    if role == "tool":
        name = exports.within(message, "author").get("name")
        yield {**openai.tool_result(call_id=message.get("id"), output=_plain(content)), "name": name}
    elif content.get("content_type") in _THOUGHTS:
        yield {"type": "thinking", "thinking": _thought(content)}
    elif role == "assistant" and isinstance(recipient, str) and recipient != "all":
        yield openai.tool_use(call_id=message.get("id"), name=recipient, arguments={"input": _plain(content)})
    else:
        yield from _said(content)
        yield from _attachments(message)


def _said(content: Object) -> Iterator[object]:
    if isinstance(content.get("parts"), list):
        for part in exports.entries(content, "parts"):
            yield from _part(part)
    elif content:
        yield {**content, "type": str(content.get("content_type"))}


def _part(part: object) -> Iterator[object]:
    if isinstance(part, str):
        if part.strip():
            yield {"type": "text", "text": part}
    elif isinstance(part, dict) and part.get("content_type") == "audio_transcription":
        yield {"type": "text", "text": part.get("text")}
    elif isinstance(part, dict):
        yield {**part, "type": str(part.get("content_type") or "part")}


def _attachments(message: Object) -> Iterator[object]:
    for attachment in exports.entries(exports.within(message, "metadata"), "attachments"):
        if isinstance(attachment, dict):
            named = {key: attachment.get(key) for key in ("id", "name", "size") if key in attachment}
            yield {**named, "type": "attachment", "media_type": attachment.get("mime_type", attachment.get("mimeType"))}


def _plain(content: Mapping[str, object]) -> object:
    """What is said to a tool, or by one: its text where it is text alone, else all of it."""
    parts = content.get("parts")
    if isinstance(parts, list) and all(isinstance(part, str) for part in parts):
        return "\n".join(parts)
    return content.get("text", content.get("result", dict(content)))


def _thought(content: Object) -> object:
    thoughts = [entry.get("content") for entry in exports.entries(content, "thoughts") if isinstance(entry, dict)]
    return "\n\n".join(str(thought) for thought in thoughts) if thoughts else content.get("content")
