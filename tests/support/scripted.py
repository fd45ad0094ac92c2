"""Runs in tests: a model that answers as scripted, in this process, and remembers what it was asked."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from sessions_exec.llm.messages import Conversation, ConversationReply
from sessions_exec.llm.streaming import OnText

Answer = ConversationReply | Exception | Callable[[threading.Event], ConversationReply]


def said(text: str, *, stop_reason: str = "end_turn") -> ConversationReply:
    return answered([{"type": "text", "text": text}] if text else [], stop_reason)


def called(name: str, text: str = "", *, id: str = "toolu_1", **given: Any) -> ConversationReply:  # noqa: A002
    blocks = [{"type": "text", "text": text}] if text else []
    return answered([*blocks, {"type": "tool_use", "id": id, "name": name, "input": given}], "tool_use")


def answered(blocks: list[dict[str, Any]], stop_reason: str) -> ConversationReply:
    return ConversationReply(blocks=blocks, stop_reason=stop_reason, input_tokens=1, output_tokens=1, model="scripted")


class ScriptedModel:
    """Each call takes the next answer: a reply, an error to raise, or something to be called with the stop's event."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = deque(answers)
        self.asked: list[Conversation] = []
        self.purposes: list[str] = []
        self.line = ""

    def closed(self) -> str:
        return self.line

    def ask(
        self, conversation: Conversation, *, purpose: str, epoch: int, on_text: OnText, stop: threading.Event
    ) -> ConversationReply:
        self.asked.append(conversation)
        self.purposes.append(purpose)
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        reply = answer if isinstance(answer, ConversationReply) else answer(stop)
        on_text(reply.text)
        return reply

    @property
    def last(self) -> list[dict[str, Any]]:
        """The messages of the newest call."""
        return [dict(message) for message in self.asked[-1].messages]


def words(messages: list[dict[str, Any]]) -> str:
    """Everything that stands in messages, as one text."""
    return "\n".join(
        str(block.get("text", block.get("content", ""))) for message in messages for block in message["content"]
    )


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the thread that renews: it would see nothing of a test's own transaction."""
    from sessions_exec.runner.holding import Holding

    monkeypatch.setattr(Holding, "_keep", lambda self: None)
