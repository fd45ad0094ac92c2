"""One streamed call to a provider that speaks the Anthropic wire: heard word by word, and broken off when need be.

The call as a whole is bounded, tries once and is routed by its endpoint alone, as one with the whole answer at once is
(see `anthropic_client`). What has come is known whatever ends the call.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sessions_exec.llm import anthropic_client, failures
from sessions_exec.llm.messages import (
    CallStopped,
    Conversation,
    ConversationReply,
    Endpoint,
    FailureKind,
    ModelCallFailed,
)

OnText = Callable[[str], None]

LOOK_SECONDS = 0.05
"""How often it is looked whether the call is to be broken off."""

MOST_BLOCKS = 200
"""Parts of one answer (A4). Their size is bounded by that of the body."""


def converse(
    endpoint: Endpoint, *, conversation: Conversation, heard: Heard, stop: threading.Event
) -> ConversationReply:
    """Ask the model of `heard` once, and hear the answer while it comes. Blocks the calling thread.

    Raises `CallStopped` once `stop` is set, and `ModelCallFailed`; both tell what had come. Whatever else ends it,
    `heard` has what had come.
    """
    model = heard.model

    async def work() -> None:
        asking = anthropic_client.bounded(endpoint, lambda: _hear(endpoint, model, conversation, heard))
        hearing = asyncio.ensure_future(asking)
        try:
            while not hearing.done():
                if stop.is_set():
                    raise CallStopped(**heard.so_far())
                await asyncio.wait({hearing}, timeout=LOOK_SECONDS)
        finally:
            hearing.cancel()
        hearing.result()

    try:
        anthropic_client.call(endpoint, work)
    except ModelCallFailed as failure:
        so_far = heard.so_far()
        failure.text, failure.input_tokens, failure.output_tokens = so_far.values()
        raise
    return heard.reply()


async def _hear(endpoint: Endpoint, model: str, conversation: Conversation, heard: Heard) -> None:
    arguments = _arguments(model, conversation)
    async with (
        anthropic_client.client(endpoint, accept="text/event-stream") as asking,
        await asking.messages.create(**arguments, stream=True) as stream,
    ):
        async for event in stream:
            heard.take(event.to_dict(mode="json"))


def _arguments(model: str, conversation: Conversation) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "model": model,
        "max_tokens": conversation.max_tokens,
        "messages": _readable(list(conversation.messages)),
    }
    if conversation.system:
        arguments["system"] = failures.readable(conversation.system)
    if conversation.tools:
        arguments["tools"] = list(conversation.tools)
        if not conversation.may_call:
            arguments["tool_choice"] = {"type": "none"}
    return arguments


def _readable(value: Any) -> Any:
    """The value with every text in it as JSON can carry it."""
    if isinstance(value, str):
        return failures.readable(value)
    if isinstance(value, list):
        return [_readable(each) for each in value]
    return {name: _readable(each) for name, each in value.items()} if isinstance(value, dict) else value


@dataclass(kw_only=True)
class Heard:
    """An answer as it comes. What is neither text nor a tool call, such as thinking, is passed over."""

    model: str
    on_text: OnText
    blocks: dict[int, dict[str, Any]] = field(default_factory=dict)
    inputs: dict[int, str] = field(default_factory=dict)
    stop_reason: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    ended: bool = False

    def take(self, event: dict[str, Any]) -> None:
        """One event of the stream."""
        kind, index = event.get("type"), event.get("index")
        if kind == "message_start":
            message = event.get("message") or {}
            self.model = str(message.get("model") or self.model)
            self._count(message.get("usage"))
        elif kind == "content_block_start" and isinstance(index, int):
            self._begin(index, event.get("content_block") or {})
        elif kind == "content_block_delta" and isinstance(index, int):
            self._go_on(index, event.get("delta") or {})
        elif kind == "message_delta":
            self.stop_reason = str((event.get("delta") or {}).get("stop_reason") or self.stop_reason)
            self._count(event.get("usage"))
        elif kind == "message_stop":
            self.ended = True

    def so_far(self) -> dict[str, Any]:
        """What had come: the words and the tokens."""
        texts = (block["text"] for _, block in sorted(self.blocks.items()) if block["type"] == "text")
        words = failures.readable("\n\n".join(texts))
        return {"text": words, "input_tokens": self.input_tokens, "output_tokens": self.output_tokens}

    def reply(self) -> ConversationReply:
        """The answer, if it came to its end. Raises `ModelCallFailed`."""
        if not self.ended:
            message = "the answer ended before its end was told"
            raise ModelCallFailed(kind=FailureKind.CONNECTION, message=message, **self.so_far())
        return ConversationReply(
            blocks=[block for index in sorted(self.blocks) if (block := self._whole(index))],
            stop_reason=self.stop_reason or "end_turn",
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            model=self.model,
        )

    def _begin(self, index: int, block: dict[str, Any]) -> None:
        if len(self.blocks) >= MOST_BLOCKS:
            raise ModelCallFailed(kind=FailureKind.SERVER, message=f"the answer has more than {MOST_BLOCKS} parts")
        if block.get("type") == "text":
            self.blocks[index] = {"type": "text", "text": ""}
            self._say(index, block.get("text"))
        elif block.get("type") == "tool_use":
            called = {name: str(block.get(name) or "") for name in ("id", "name")}
            self.blocks[index] = {"type": "tool_use", **called, "input": block.get("input") or {}}

    def _go_on(self, index: int, delta: dict[str, Any]) -> None:
        kind = self.blocks.get(index, {}).get("type")
        if kind == "text" and delta.get("type") == "text_delta":
            self._say(index, delta.get("text"))
        elif kind == "tool_use" and delta.get("type") == "input_json_delta":
            self.inputs[index] = self.inputs.get(index, "") + str(delta.get("partial_json") or "")

    def _say(self, index: int, text: object) -> None:
        if isinstance(text, str) and text:
            self.blocks[index]["text"] += text
            self.on_text(text)

    def _whole(self, index: int) -> dict[str, Any] | None:
        """A part as it is kept. Nothing of a text without words, which a provider would refuse to be shown again."""
        block = self.blocks[index]
        if block["type"] == "text":
            words = failures.readable(block["text"])
            return {"type": "text", "text": words} if words.strip() else None
        if not self.inputs.get(index):
            return block
        try:
            given = json.loads(self.inputs[index])
        except (ValueError, RecursionError):
            given = None
        # What cannot be read is kept as it came: the tool says what is wrong with it.
        return {**block, "input": given if isinstance(given, dict) else {"unreadable": self.inputs[index][:2_000]}}

    def _count(self, usage: object) -> None:
        self.input_tokens = max(self.input_tokens, anthropic_client.tokens(usage, "input"))
        self.output_tokens = max(self.output_tokens, anthropic_client.tokens(usage, "output"))
