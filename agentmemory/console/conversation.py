"""A transcript as a conversation: turns as blocks, tool calls folded, thinking hidden, what was taken back struck.

Transcripts are hostile input: everything here is plain text, and the templates escape it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentmemory.models import Memory, Message

CHARS_SHOWN = 20_000
CHARS_OF_A_TOOL = 8_000
BLOCKS_SHOWN = 200


@dataclass(frozen=True, kw_only=True)
class Block:
    """One part of a message. `kind` is `text`, `tool_use`, `tool_result`, `thinking` or `other`."""

    kind: str
    text: str = ""
    name: str = ""
    failed: bool = False
    cut: int = 0


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One message, ready to be shown."""

    message: Message
    blocks: Sequence[Block]
    gone: str = ""
    memories: Sequence[Memory] = ()
    line: str = ""
    missing: int = 0
    """Messages before it that are not there any more: numbers are given once."""
    acts: Sequence[Mapping[str, str]] = ()

    @property
    def who(self) -> str:
        """Who speaks: tools answer in messages of type `user`."""
        if self.blocks and all(block.kind == "tool_result" for block in self.blocks):
            return "tool"
        return str(self.message.type)

    @property
    def silent(self) -> bool:
        """Whether there is nothing to show of it."""
        return not any(block.text or block.kind != "text" for block in self.blocks)


@dataclass(kw_only=True)
class Turn:
    """The messages up to and with one that ends the turn."""

    entries: list[Entry] = field(default_factory=list)
    ended: bool = False


def turns(
    messages: Iterable[Message],
    *,
    memories: Mapping[int, Sequence[Memory]],
    lines: Mapping[int, str],
    acts: Mapping[int, Sequence[Mapping[str, str]]],
    first: int,
    readable: bool = True,
) -> list[Turn]:
    """Messages as turns, from the number `first` on.

    `memories` go into the margin, `lines` below the message of their number, `acts` beside it.
    """
    found: list[Turn] = []
    awaited = first
    for message in messages:
        if not found or found[-1].ended:
            found.append(Turn())
        found[-1].entries.append(
            Entry(
                message=message,
                blocks=_blocks(message) if readable else (),
                gone=_gone(message, readable=readable),
                memories=memories.get(message.seq, ()),
                line=lines.get(message.seq, ""),
                missing=max(0, message.seq - awaited),
                acts=acts.get(message.seq, ()),
            )
        )
        found[-1].ended = message.ends_turn
        awaited = message.seq + 1
    return found


def _gone(message: Message, *, readable: bool) -> str:
    if message.retracted_at is not None:
        # A reason may quote what it takes back.
        told = readable and message.retraction_reason
        return f"retracted: {message.retraction_reason}" if told else "retracted"
    return f"superseded by {message.superseded_by}" if message.superseded_by else ""


def _blocks(message: Message) -> list[Block]:
    content = message.content
    if isinstance(content, str):
        return [_text(content)]
    if not isinstance(content, list):
        return [_other(content)]
    shown = [_block(part, message) for part in content[:BLOCKS_SHOWN]]
    if len(content) > BLOCKS_SHOWN:
        shown.append(Block(kind="other", text=f"{len(content) - BLOCKS_SHOWN} more parts are not shown."))
    return shown


def _block(part: Any, message: Message) -> Block:
    if isinstance(part, str):
        return _text(part)
    if not isinstance(part, dict):
        return _other(part)
    kind = part.get("type")
    if kind == "text" and isinstance(part.get("text"), str):
        return _text(part["text"])
    if kind in ("thinking", "redacted_thinking"):
        return Block(kind="thinking")
    if kind == "tool_use":
        outcome = message.tool_outcomes.get(str(part.get("id")), "") if isinstance(message.tool_outcomes, dict) else ""
        shown = _bounded(_pretty(part.get("input")), CHARS_OF_A_TOOL)
        text = f"{shown}\n\n{outcome}" if outcome else shown
        return Block(kind="tool_use", name=str(part.get("name") or "a tool")[:200], text=text, failed=bool(outcome))
    if kind == "tool_result":
        shown = _bounded(_result(part.get("content")), CHARS_OF_A_TOOL)
        return Block(kind="tool_result", text=shown, failed=part.get("is_error") is True)
    return _other(part)


def _result(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]
        return "\n\n".join(texts) or _pretty(content)
    return "" if content is None else _pretty(content)


def _text(text: str) -> Block:
    return Block(kind="text", text=text[:CHARS_SHOWN], cut=max(0, len(text) - CHARS_SHOWN))


def _other(part: Any) -> Block:
    return Block(kind="other", text=_bounded(_pretty(part), CHARS_OF_A_TOOL))


def _pretty(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def _bounded(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}\n… {len(text) - most} more characters"
