"""What holds for every format: files are damaged in every way, and none of it stops an import."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentmemory import importers
from agentmemory.importers import base

LIVE = datetime(1970, 1, 2, tzinfo=UTC)
WORDS = {"type": "text", "text": "words"}
WHOLE: dict[str, list[Any]] = {
    "claude_code": [
        {"type": "user", "uuid": "u", "sessionId": "s", "timestamp": "2026-01-01T10:00:00Z",
         "message": {"content": "x"}},
        {"type": "assistant", "uuid": "a", "sessionId": "s", "message": {"id": "m", "content": [WORDS]}, "origin": {}},
    ],
    "codex": [
        {
            "type": "session_meta",
            "timestamp": "2026-01-01T10:00:00Z",
            "payload": {
                "id": "s", "cwd": "/", "git": {"branch": "x"}, "timestamp": "2026-01-01T10:00:00Z",
                "source": {"subagent": {"thread_spawn": {"parent_thread_id": "t"}}},
            },
        },
        {"type": "response_item", "payload": {"type": "message", "role": "user", "content": [WORDS]}},
        {"type": "event_msg", "payload": {"type": "user_message", "message": "x", "kind": "plain"}},
        {"type": "response_item", "payload": {"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"}},
        {"type": "response_item", "payload": {"type": "function_call_output", "call_id": "c", "output": "o"}},
        {"type": "event_msg", "payload": {"type": "task_complete", "last_agent_message": "y"}},
        {"type": "compacted", "payload": {"message": "z"}},
    ],
    "opencode": [
        {
            "info": {"id": "s", "title": "t", "directory": "/", "time": {"created": 1, "updated": 2}},
            "messages": [
                {"info": {"id": "m", "role": "user", "time": {"created": 1}}, "parts": [WORDS]},
                {
                    "info": {"id": "n", "role": "assistant", "time": {"created": 1, "completed": 2}, "error": {}},
                    "parts": [
                        WORDS, {"type": "tool", "callID": "c", "tool": "t", "state": {"status": "error", "input": {}}},
                    ],
                },
            ],
        }
    ],
    "chatgpt": [
        {
            "title": "t", "create_time": 1.5, "update_time": 2.5, "conversation_id": "s", "current_node": "a",
            "mapping": {
                "r": {"message": None, "parent": None},
                "u": {
                    "parent": "r",
                    "message": {
                        "id": "u", "author": {"role": "user"}, "create_time": 1.5, "recipient": "all",
                        "content": {"content_type": "text", "parts": ["x", {"content_type": "audio_transcription"}]},
                        "metadata": {"attachments": [{"name": "n"}]},
                    },
                },
                "a": {
                    "parent": "u",
                    "message": {
                        "id": "a", "author": {"role": "assistant"}, "recipient": "python", "status": "in_progress",
                        "content": {"content_type": "thoughts", "thoughts": [{"content": "y"}]},
                    },
                },
            },
        }
    ],
    "claude_export": [
        {
            "uuid": "s", "name": "t", "created_at": "2026-01-01T10:00:00Z", "current_leaf_message_uuid": "b",
            "chat_messages": [
                {"uuid": "a", "sender": "human", "text": "x", "content": [WORDS], "created_at": "2026-01-01T10:00:00Z"},
                {"uuid": "b", "sender": "assistant", "text": "x", "parent_message_uuid": "a", "attachments": [{}]},
            ],
        }
    ],
    "message_list": [
        {
            "session_id": "s",
            "system": "be brief",
            "messages": [
                {"role": "user", "content": [WORDS], "created_at": 1},
                {
                    "role": "assistant", "content": "a", "id": "m",
                    "tool_calls": [{"id": "c", "function": {"name": "n", "arguments": "{}"}}],
                },
                {"role": "tool", "tool_call_id": "c", "content": "o"},
                {"type": "function_call_output", "call_id": "c", "output": "o"},
            ],
        }
    ],
}  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=5)
    | st.sampled_from(["user", "assistant", "text", "\ud800", "\0", "x" * 300]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


def places(value: Any, *way: Any) -> Iterator[tuple[Any, ...]]:
    """The way to everything in `value`."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield (*way, key)
        yield from places(inner, *way, key)


def damage(records: list[Any], way: tuple[Any, ...], value: Any) -> list[Any]:
    damaged: Any = copy.deepcopy(records)
    at = damaged
    for key in way[:-1]:
        at = at[key]
    at[way[-1]] = value
    return list(damaged)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("name", WHOLE)
@given(data=st.data())
def test_a_file_with_anything_anywhere_is_read_or_refused(tmp_path: Path, name: str, data: st.DataObject) -> None:
    path = tmp_path / "file"
    records = WHOLE[name]
    for _ in range(data.draw(st.integers(1, 2))):
        way = data.draw(st.sampled_from(list(places(records))))
        records = damage(records, way, data.draw(VALUES))
    path.write_text("\n".join(json.dumps(record) for record in records))
    importers.detect(path)
    for importer in importers.FORMATS.values():
        try:
            transcript = importer.read(path, settled_before=data.draw(st.sampled_from([None, LIVE])))
        except base.UnreadableTranscript:
            continue
        for session in transcript.sessions:
            uids = [message.uid for message in session.messages]
            assert len(uids) == len(set(uids))
            assert all(0 < len(uid) < 200 for uid in uids)
            json.dumps([message.content for message in session.messages], allow_nan=False)


@pytest.mark.parametrize("name", WHOLE)
def test_each_format_is_told_from_the_others_by_what_it_holds(tmp_path: Path, name: str) -> None:
    path = tmp_path / "file"
    path.write_text("\n".join(json.dumps(record) for record in WHOLE[name]))
    importer = importers.detect(path)
    assert importer is importers.FORMATS[name]
    assert importer.read(path).sessions
