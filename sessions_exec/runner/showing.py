"""A session as a model is shown it: what stands of it, in the shapes of the wire, whoever wrote it.

Marks that a recovery made are shown as what they are (S8): a tool call without a result gets its unknown outcome for
one. What the runner does not offer, such as the tools of an imported session, is shown as text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentmemory import speech
from agentmemory.models import Message, MessageEdge, Session
from sessions_exec.marks import OWN, SUMMARY
from sessions_exec.runner import tools, words

MOST_MESSAGES = 5_000
MOST_CHARS_OF_A_FOREIGN_CALL = 4_000
CHARS_PER_TOKEN = 3
"""Fewer than there are in plain English: an estimate that is wrong should be wrong on this side."""

Block = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What stands of a session: the newest summary, if it still holds, and the messages after it."""

    summary: str
    messages: Sequence[Message]


def load(session: Session) -> Shown:
    """Read what stands, the newest where there is too much of it."""
    boundary = _boundary(session)
    rows = Message.objects.standing().filter(session=session, parent_tool_use_id="")
    rows = rows.exclude(type=Message.Type.SYSTEM, subtype=SUMMARY)
    if boundary is not None:
        rows = rows.filter(seq__gte=_begins(boundary))
    newest = rows.defer("text").order_by("-seq")[:MOST_MESSAGES]
    return Shown(summary=boundary.text if boundary is not None else "", messages=list(newest)[::-1])


def as_asked(shown: Shown) -> list[Block]:
    """The messages of a request: roles in turn, from the user to the user, each tool call with its result."""
    said: list[tuple[str, Block]] = []
    if shown.summary:
        said.append(_user(words.EARLIER.format(shown.summary)))
    given = _results(shown.messages)
    for message in shown.messages:
        said += _of(message, given)
    if said and said[0][0] == "assistant":
        said.insert(0, _user(words.BEGINS_LATER))
    if not said or said[-1][0] == "assistant":
        said.append(_user(words.GO_ON))
    return _in_turn(said)


def tokens(*parts: object) -> int:
    """About how many tokens something is."""
    return sum(len(json.dumps(part, ensure_ascii=False, default=str)) for part in parts) // CHARS_PER_TOKEN


def newest_prompt(shown: Shown) -> str:
    """The words that were last said to the agent."""
    for message in reversed(shown.messages):
        if message.type == Message.Type.USER and (text := speech.visible_text(message.content).strip()):
            return text
    return ""


def _boundary(session: Session) -> Message | None:
    """The newest summary, unless something of what it sums up was taken back since: then it says too much."""
    rows = Message.objects.standing().filter(session=session, type=Message.Type.SYSTEM, subtype=SUMMARY)
    rows = rows.filter(uid__startswith=OWN)
    boundary = rows.order_by("-seq").first()
    if boundary is None:
        return None
    summed = Message.objects.filter(session=session, seq__lt=_begins(boundary)).values("uid")
    taken_back = MessageEdge.objects.filter(session=session, created_at__gt=boundary.created_at, target_uid__in=summed)
    return None if taken_back.exists() else boundary


def _begins(boundary: Message) -> int:
    """The number of the first message that is shown beside a summary."""
    for block in _blocks(boundary.content):
        if block.get("type") == "compaction" and isinstance(block.get("kept_from"), int):
            return int(block["kept_from"])
    return boundary.seq


def _of(message: Message, given: Mapping[str, Block]) -> Iterable[tuple[str, Block]]:
    if message.type == Message.Type.ASSISTANT:
        yield from _answer(message, given)
    elif message.type == Message.Type.USER and message.delivery == Message.Delivery.CONSUMED:
        yield from _prompt(message, given)
    elif message.type == Message.Type.RESULT and message.is_error:
        yield _user(words.TURN_FAILED.format(message.text or message.subtype or "no reason is known"))
    elif message.type == Message.Type.SYSTEM and message.is_error:
        yield _user(words.NOTE.format(message.text))


def _answer(message: Message, given: Mapping[str, Block]) -> Iterable[tuple[str, Block]]:
    calls = []
    for block in _blocks(message.content):
        if block.get("type") == "text" and str(block.get("text") or "").strip():
            yield "assistant", _text(str(block["text"]).rstrip())
        elif _is_ours(block):
            calls.append(block["id"])
            yield "assistant", {name: block.get(name) for name in ("type", "id", "name", "input")}
        elif block.get("type") == "tool_use":
            asked = json.dumps(block.get("input"), ensure_ascii=False)[:MOST_CHARS_OF_A_FOREIGN_CALL]
            yield "assistant", _text(f"[called {block.get('name')}: {asked}]")
    for call in calls:
        outcome = message.tool_outcomes.get(call) or words.NO_RESULT
        missing = {"type": "tool_result", "tool_use_id": call, "content": outcome, "is_error": True}
        yield "user", given.get(call, missing)
    if message.is_error:
        yield _user(words.NOT_WHOLE)


def _prompt(message: Message, given: Mapping[str, Block]) -> Iterable[tuple[str, Block]]:
    for block in _blocks(message.content):
        kind = block.get("type")
        if kind == "tool_result":
            if block.get("tool_use_id") not in given:
                yield _user(f"[a tool answered: {_words_of(block)[:MOST_CHARS_OF_A_FOREIGN_CALL]}]")
        elif kind != "text":
            yield _user(words.NOT_SHOWN.format(str(kind)[:50]))
        elif str(block.get("text") or "").strip():
            yield _user(str(block["text"]))


def _results(messages: Iterable[Message]) -> dict[str, Block]:
    """The results of the calls of our own tools among these messages, by the call."""
    called: set[str] = set()
    found: dict[str, Block] = {}
    for message in messages:
        for block in _blocks(message.content):
            if message.type == Message.Type.ASSISTANT and _is_ours(block):
                called.add(block["id"])
            elif block.get("type") == "tool_result" and block.get("tool_use_id") in called:
                wrong = {"is_error": True} if block.get("is_error") is True else {}
                kept = {
                    "type": "tool_result",
                    "tool_use_id": block["tool_use_id"],
                    "content": _words_of(block),
                    **wrong,
                }
                found.setdefault(block["tool_use_id"], kept)
    return found


def _is_ours(block: Block) -> bool:
    named = block.get("type") == "tool_use" and isinstance(block.get("id"), str) and block.get("id")
    return bool(named) and block.get("name") in tools.TOOLS and isinstance(block.get("input"), dict)


def _in_turn(said: Iterable[tuple[str, Block]]) -> list[Block]:
    """One message after another of each role. Results come first in theirs, as the wire has it."""
    found: list[Block] = []
    for role, block in said:
        if not found or found[-1]["role"] != role:
            found.append({"role": role, "content": []})
        found[-1]["content"].append(block)
    for message in found:
        message["content"].sort(key=lambda block: block["type"] != "tool_result" and message["role"] == "user")
    return found


def _blocks(content: object) -> list[Block]:
    if isinstance(content, str):
        return [_text(content)]
    parts = content if isinstance(content, list) else []
    return [_text(part) if isinstance(part, str) else part for part in parts if isinstance(part, str | dict)]


def _words_of(block: Block) -> str:
    content = block.get("content")
    return speech.visible_text(content) if isinstance(content, str | list) else ""


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _user(text: str) -> tuple[str, Block]:
    return "user", _text(text)
