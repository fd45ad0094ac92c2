"""OpenAI's shapes of content, as the blocks that transcripts are kept in: text, uses of tools and their results."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence

Object = dict[str, object]

_TEXTS = ("text", "input_text", "output_text")


def blocks(content: object) -> list[object]:
    """The content of a message: its words as text blocks, everything else as it is."""
    if isinstance(content, str):
        return [text(content)] if content else []
    return [_block(block) for block in content] if isinstance(content, list) else []


def _block(block: object) -> object:
    if isinstance(block, dict) and block.get("type") in _TEXTS and isinstance(block.get("text"), str):
        return {**block, "type": "text"}
    return block


def text(words: str) -> Object:
    return {"type": "text", "text": words}


def tool_use(*, call_id: object, name: object, arguments: object) -> Object:
    """A use of a tool. Arguments come as JSON within a string; what is no JSON stays a string."""
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError, RecursionError):
            arguments = json.loads(arguments)
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def tool_result(*, call_id: object, output: object) -> Object:
    return {"type": "tool_result", "tool_use_id": call_id, "content": output}


def is_call(kind: object) -> bool:
    """Whether an item of this type uses a tool: `function_call`, `custom_tool_call`, `web_search_call` and others."""
    return isinstance(kind, str) and kind.endswith("_call")


def is_output(kind: object) -> bool:
    """Whether an item of this type is what a tool gave back."""
    return isinstance(kind, str) and kind.endswith("_output")


def call(item: Object) -> Object:
    """The use of a tool that an item of the Responses API is."""
    arguments = next((item[key] for key in ("arguments", "input", "action") if key in item), None)
    return tool_use(call_id=item.get("call_id"), name=item.get("name") or item.get("type"), arguments=arguments)


def output(item: Object) -> Object:
    """The result of a tool that an item of the Responses API is."""
    return tool_result(call_id=item.get("call_id"), output=item.get("output"))


def calls(message: Object) -> list[object]:
    """The uses of tools that stand beside the content of a message of the Chat Completions API."""
    used = message.get("tool_calls")
    entries: Sequence[object] = used if isinstance(used, list) else [{"function": message.get("function_call")}]
    return [_chat_call(entry) for entry in entries if isinstance(entry, dict) and _function(entry)]


def _chat_call(entry: Object) -> Object:
    function = _function(entry)
    arguments = function.get("arguments", function.get("input"))
    return tool_use(call_id=entry.get("id"), name=function.get("name"), arguments=arguments)


def _function(entry: Object) -> Object:
    function = entry.get("function") or entry.get("custom")
    return function if isinstance(function, dict) else {}
