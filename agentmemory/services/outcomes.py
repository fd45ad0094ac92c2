"""Answers that were cut short: which one is the newest, what it left unfinished, and how that is written down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agentmemory import signals
from agentmemory.models import Message, Session


def newest_assistant(session: Session) -> Message | None:
    """The newest standing message of the assistant itself; those of its helpers do not count."""
    spoken = Message.objects.standing().filter(session=session, type=Message.Type.ASSISTANT, parent_tool_use_id="")
    return spoken.order_by("-seq").first()


def assistant(session: Session, uid: str) -> Message | None:
    """The assistant's message of this uid, if it is there."""
    return Message.objects.filter(session=session, uid=uid, type=Message.Type.ASSISTANT).first()


def unfinished_tool_calls(session: Session, message: Message) -> list[str]:
    """Ids of the tool calls in a message to which no later message, nor itself, has the result. In their order."""
    calls = [block["id"] for block in _blocks(message.content) if _is_call(block)]
    if not calls:
        return []
    later = Message.objects.standing().filter(session=session, seq__gte=message.seq)
    answered = {
        block["tool_use_id"]
        for content in later.values_list("content", flat=True).iterator(chunk_size=200)
        for block in _blocks(content)
        if isinstance(block.get("tool_use_id"), str)
    }
    return [call for call in dict.fromkeys(calls) if call not in answered]


def fail(session: Session, message: Message, *, tool_outcomes: Mapping[str, str]) -> None:
    """Complete a message as an error, and say of its tool calls what became of them. Its content stays.

    Called within a transaction that has locked the session.
    """
    message.is_error = True
    message.tool_outcomes = {**message.tool_outcomes, **tool_outcomes}
    message.save(update_fields=["is_error", "tool_outcomes"])
    change = {"uid": message.uid, "seq": message.seq, "is_error": True, "tool_outcomes": message.tool_outcomes}
    signals.messages_changed.send(Session, session=session, changes=[change])


def _is_call(block: Mapping[str, Any]) -> bool:
    kind, name = block.get("type"), block.get("id")
    return isinstance(kind, str) and kind.endswith("tool_use") and isinstance(name, str)


def _blocks(content: object) -> Iterator[dict[str, Any]]:
    if isinstance(content, list):
        yield from (block for block in content if isinstance(block, dict))
