"""What is answered where no model is set up: what the memory has on what was said, and that this is all (no model).

Pure and always the same, so that the whole way can be tried without a key. It claims nothing of its own.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from agentmemory import speech
from sessions_exec.llm.messages import Conversation, ConversationReply

NAME = "offline"
MOST_CHARS = 300
MOST_LINES = 100
INTRODUCTION = "No model is set up here, so nothing was thought about your words. "
NOTHING = INTRODUCTION + "This agent's memory has nothing on them."
# Marked, so that what is remembered does not come back as news (D4).
FOUND = f"{INTRODUCTION}This agent's memory has on them:\n\n{speech.RECALLED_BEGIN}\n{{}}\n{speech.RECALLED_END}"
SUMMARY = "No model is set up here. The beginnings of what was said:\n\n{}"


def reply(conversation: Conversation) -> ConversationReply:
    """Search the memory for what was last said, then tell what was found."""
    last = conversation.messages[-1]["content"]
    if not conversation.tools:
        return _said(SUMMARY.format(_beginnings(_text(last))))
    result = next((block for block in last if block["type"] == "tool_result"), None)
    if result is not None:
        return _said(_told(result))
    if not conversation.may_call:
        return _said(NOTHING)
    return _reply([_search(conversation, _text(last))], "tool_use")


def _search(conversation: Conversation, text: str) -> dict[str, Any]:
    seen = json.dumps(list(conversation.messages), default=str).encode()
    name = f"offline_{hashlib.sha256(seen).hexdigest()[:20]}"
    query = text.strip()[:2_000].strip() or "memory"
    return {"type": "tool_use", "id": name, "name": "memory_search", "input": {"query": query, "limit": 5}}


def _told(result: dict[str, Any]) -> str:
    try:
        items = json.loads(result["content"])["items"]
    except (ValueError, KeyError, TypeError):
        return NOTHING
    lines = [f"- {item['key']} ({item['origin']}): {_short(item['content'])}" for item in items]
    return FOUND.format(speech.escaped("\n".join(lines))) if lines else NOTHING


def _beginnings(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join(_short(line) for line in lines[-MOST_LINES:])


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MOST_CHARS else f"{line[:MOST_CHARS]}…"


def _text(content: list[dict[str, Any]]) -> str:
    """The newest words: those before them were answered, or are notes."""
    texts = [block["text"] for block in content if block["type"] == "text" and not block["text"].startswith("[note")]
    return str(texts[-1]) if texts else ""


def _said(text: str) -> ConversationReply:
    return _reply([{"type": "text", "text": text}], "end_turn")


def _reply(blocks: list[dict[str, Any]], stop_reason: str) -> ConversationReply:
    return ConversationReply(blocks=blocks, stop_reason=stop_reason, input_tokens=0, output_tokens=0, model=NAME)
