"""What is done when a conversation outgrows its model: an earlier part becomes a summary, the newest part stays (S11).

The summary and the place where the kept part begins are one message of the transcript, which loses nothing by it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django.conf import settings

from agentmemory.models import Message
from agentmemory.services import transcripts
from sessions_exec.errors import SessionsExecError
from sessions_exec.llm.messages import Conversation, ConversationReply
from sessions_exec.marks import SUMMARY
from sessions_exec.runner import showing, words
from sessions_exec.runner.showing import Shown

TAIL_SHARE = 0.25
"""Of what a model is shown, the part that stays as it was said; half of that when even this was too long."""

SUMMARY_TOKENS = 4_096
WHOLE = frozenset({"end_turn", "stop_sequence"})
SHORTEST_LINE = 200


class CannotCompact(SessionsExecError):
    """There is nothing to sum up, or no whole summary was given."""


def room() -> int:
    """Tokens that a model may be shown at once."""
    return int(settings.AGENTMEMORY_WINDOW_TOKENS)


def tail_from(shown: Shown, *, tighter: bool) -> int:
    """Where in the messages the part begins that stays as it was said. Raises `CannotCompact` where all would stay."""
    left = room() * showing.CHARS_PER_TOKEN * TAIL_SHARE / (2 if tighter else 1)
    at = len(shown.messages)
    while at > 0 and (size := _size(shown.messages[at - 1])) <= left:
        left -= size
        at -= 1
    # Results stay with their calls, where that does not keep all.
    while at < len(shown.messages) and _is_results(shown.messages[at]):
        at += 1
    if at == 0 or not shown.messages:
        raise CannotCompact("nothing is left that could be summed up")
    return at


def question(shown: Shown, at: int) -> Conversation:
    """What is asked for a summary of the messages before `at`, and of the summary before them. Without tools."""
    head = shown.messages[:at]
    most = int(room() * showing.CHARS_PER_TOKEN * 0.8) - len(shown.summary)
    each = max(SHORTEST_LINE, most // max(1, len(head)))
    lines = [line for message in head if (line := _line(message, each))]
    lines = _newest(lines, most)
    if shown.summary:
        lines.insert(0, f"[what was summed up before]\n{shown.summary}")
    asked = words.SUMMARY_ASKED.format("\n\n".join(lines))
    content = [{"type": "text", "text": asked}]
    return Conversation(
        system=words.SUMMARISE, messages=[{"role": "user", "content": content}], max_tokens=SUMMARY_TOKENS
    )


def boundary(reply: ConversationReply, shown: Shown, at: int, *, uid: str) -> transcripts.NewMessage:
    """The message that a summary becomes. Raises `CannotCompact` for one that is blank or was cut."""
    if reply.stop_reason not in WHOLE or not reply.text.strip():
        raise CannotCompact(words.NO_SUMMARY)
    last = shown.messages[at - 1].seq
    kept = shown.messages[at].seq if at < len(shown.messages) else last + 1
    return transcripts.NewMessage(
        uid=uid,
        type=Message.Type.SYSTEM,
        subtype=SUMMARY,
        content=[{"type": "text", "text": reply.text}, {"type": "compaction", "kept_from": kept, "summed_up_to": last}],
    )


def _line(message: Message, most: int) -> str:
    """One message for the one who sums up, cut to its share."""
    text = json.dumps(message.content, ensure_ascii=False) if isinstance(message.content, list) else message.content
    marks = " (ended with an error)" if message.is_error else ""
    outcomes = f" {json.dumps(message.tool_outcomes, ensure_ascii=False)}" if message.tool_outcomes else ""
    said = f"{text}{outcomes}".strip()
    if not said:
        return ""
    cut = said if len(said) <= most else f"{said[:most]}… [{len(said) - most} more characters]"
    return f"{message.type}{marks}: {cut}"


def _newest(lines: Sequence[str], most: int) -> list[str]:
    """The newest lines that fit, and how many were left out."""
    kept: list[str] = []
    for line in reversed(lines):
        most -= len(line)
        if most < 0 and kept:
            left_out = len(lines) - len(kept)
            return [f"[{left_out} older messages are left out]", *kept[::-1]]
        kept.append(line)
    return kept[::-1]


def _size(message: Message) -> int:
    return len(json.dumps(message.content, ensure_ascii=False, default=str))


def _is_results(message: Message) -> bool:
    content: Any = message.content
    return isinstance(content, list) and any(
        isinstance(block, dict) and block.get("type") == "tool_result" for block in content
    )
