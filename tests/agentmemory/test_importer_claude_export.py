from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agentmemory import importers
from agentmemory.importers import base, claude_export
from tests.support.talks import only, said


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words, "citations": []}


def message(uid: str, sender: str, *blocks: Any, second: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "uuid": uid,
        "text": "\n".join(block for block in blocks if isinstance(block, str)),
        "content": [
            {"type": "text", "text": block, "citations": []} if isinstance(block, str) else block for block in blocks
        ],
        "sender": sender,
        "created_at": f"2026-01-01T10:00:{second:02}.123456Z",
        "updated_at": f"2026-01-01T10:00:{second:02}.123456Z",
        "attachments": [],
        "files": [],
        **more,
    }


def conversation(*messages: dict[str, Any], name: str = "c1", **more: Any) -> dict[str, Any]:
    return {
        "uuid": name,
        "name": "Refunds",
        "created_at": "2026-01-01T10:00:00Z",
        "updated_at": "2026-01-01T10:01:00Z",
        "account": {"uuid": "me"},
        "chat_messages": list(messages),
        **more,
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "conversations.json"


def read(path: Path, *conversations: Any) -> base.Transcript:
    path.write_text(json.dumps(list(conversations)))
    return claude_export.ClaudeExport().read(path)


def test_a_conversation_is_a_session_with_its_title_and_times(path: Path) -> None:
    session = only(
        read(path, conversation(message("u", "human", "Hello."), message("a", "assistant", "Hi.", second=2)))
    )
    assert (session.session_id, session.title) == ("c1", "Refunds")
    assert said(session) == [("user", "Hello."), ("assistant", "Hi.")]
    assert session.messages[1].occurred_at == datetime(2026, 1, 1, 10, 0, 2, 123_456, tzinfo=UTC)
    assert session.last_record_at == datetime(2026, 1, 1, 10, 1, tzinfo=UTC)


def test_the_text_beside_the_blocks_says_nothing_twice_and_counts_where_it_is_alone(path: Path) -> None:
    tool = {"type": "tool_use", "name": "search", "input": {}, "id": "t"}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "found"}]}
    thinking = {"type": "thinking", "thinking": "Hm."}
    placeholder = "This block is not supported on your current device yet."
    session = only(
        read(
            path,
            conversation(
                message("u", "human", text="Old.", content=[]),
                message("a", "assistant", thinking, tool, result, "Done.", text=f"{placeholder}\nDone."),
            ),
        )
    )
    assert said(session) == [("user", "Old."), ("assistant", "Done.")]
    assert len(session.messages[1].content) == 4


def test_an_attached_file_is_named_and_nobody_said_what_is_in_it(path: Path) -> None:
    file = {"file_name": "notes.txt", "file_size": 4, "file_type": "txt", "extracted_content": "We said no."}
    session = only(
        read(
            path,
            conversation(
                message("u", "human", "Look.", attachments=[file], files=[{"file_name": "a.png"}]),
                message("f", "human", text="", content=[{"type": "text", "text": ""}], attachments=[file]),
                message("e", "human", text="", content=[]),
                message("a", "assistant", "I see."),
            ),
        )
    )
    assert said(session) == [("user", "Look."), ("assistant", "I see.")]
    assert [(one.uid, len(one.content)) for one in session.messages] == [("u", 3), ("f", 1), ("a", 1)]


def forked() -> list[dict[str, Any]]:
    return [
        message("u1", "human", "First.", parent_message_uuid="00000000-0000-4000-8000-000000000000"),
        message("a1", "assistant", "Left behind.", parent_message_uuid="u1"),
        message("a2", "assistant", "Kept.", parent_message_uuid="u1"),
        message("u2", "human", "Edited away.", parent_message_uuid="a2"),
        message("u3", "human", "Edited.", parent_message_uuid="a2"),
    ]


@pytest.mark.parametrize(("leaf", "last"), [("u2", "Edited away."), ("gone", "Edited."), (None, "Edited.")])
def test_of_a_tree_the_path_that_the_person_sees_is_imported(path: Path, leaf: str | None, last: str) -> None:
    session = only(read(path, conversation(*forked(), current_leaf_message_uuid=leaf)))
    assert said(session) == [("user", "First."), ("assistant", "Kept."), ("user", last)]
    assert [one.uid for one in session.messages if one.ends_turn] == ["a2"]


def test_a_conversation_whose_messages_were_deleted_is_no_session(path: Path) -> None:
    transcript = read(path, conversation(), conversation(message("u", "human", "Q."), name="c2"))
    assert only(transcript).session_id == "c2"


def test_missing_names_and_times_are_no_fault(path: Path) -> None:
    first = message("", "human", "Q.", created_at=None)
    del first["uuid"]
    talk = conversation(first, message("x", "robot", "?"), 7, created_at=None, updated_at=None, name="c1")  # type: ignore[arg-type]
    one, two = read(path, talk), read(path, talk)
    assert only(one).messages[0].uid == only(two).messages[0].uid
    assert only(one).messages[0].occurred_at is None
    assert [entry.reason for entry in one.skipped] == ["conversation c1, message 2: its sender is unknown"]


def test_the_format_is_known_by_its_content(path: Path) -> None:
    for document in ([conversation()], conversation(message("u", "human", "Q."))):
        path.write_text(json.dumps(document))
        found = importers.detect(path)
        assert found
        assert found.name == "claude_export"
    path.write_text(json.dumps([{"uuid": "p", "name": "A project", "docs": []}]))
    assert importers.detect(path) is None
