from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentmemory import importers
from agentmemory.importers import base, message_list
from tests.support.talks import SAMPLES, counts, needs_samples, only, said

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "a"},
    {"role": "user", "content": "two"},
    {"role": "assistant", "content": "b"},
]


def read(path: Path, document: Any = None) -> base.Transcript:
    if document is not None:
        path.write_text(json.dumps(document, indent=1))
    return message_list.MessageList().read(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.json"


def test_a_list_of_roles_and_words_is_a_session(path: Path) -> None:
    session = only(read(path, TALK))
    assert said(session) == [("user", "one"), ("assistant", "a"), ("user", "two"), ("assistant", "b")]
    assert [message.uid for message in session.messages] == [f"message-{n}" for n in range(1, 6)]
    assert [message.uid for message in session.messages if message.ends_turn] == ["message-3"]
    assert session.messages[0].type == "system"
    assert (session.title, session.last_record_at) == ("one", None)


def test_the_session_is_told_by_how_it_began_wherever_the_file_lies(path: Path) -> None:
    name = only(read(path, TALK)).session_id
    assert only(read(path.with_name("moved.json"), [*TALK, {"role": "user", "content": "three"}])).session_id == name
    other = [*TALK[:2], {"role": "assistant", "content": "another answer"}]
    assert only(read(path, other)).session_id != name


def test_a_session_that_names_itself_is_known_by_that_name(path: Path) -> None:
    session = only(read(path, {"session_id": "run-7", "system": "Be brief.", "messages": TALK[1:2]}))
    assert session.session_id == "run-7"
    assert [message.type for message in session.messages] == ["system", "user"]


def test_a_list_without_an_answer_is_left_out_and_said_so(path: Path) -> None:
    transcript = read(path, TALK[:2])
    assert not transcript.sessions
    assert len(transcript.skipped) == 1


def test_messages_one_a_line_are_a_list(path: Path) -> None:
    path.write_text("\n".join(json.dumps(message) for message in TALK) + "\n{broken\n")
    assert importers.detect(path) is importers.FORMATS["message_list"]
    transcript = read(path)
    assert len(only(transcript).messages) == 5
    assert [skipped.line for skipped in transcript.skipped] == [6]


def test_a_document_that_is_written_one_message_a_line_is_read_as_a_whole(path: Path) -> None:
    path.write_text("[\n" + ",\n".join(json.dumps(message) for message in TALK) + "\n]\n")
    assert importers.detect(path) is importers.FORMATS["message_list"]
    assert len(only(read(path)).messages) == 5
    path.write_text(path.read_text().removesuffix("\n]\n"))
    assert importers.detect(path) is None
    with pytest.raises(base.UnreadableTranscript):
        read(path)


def test_anthropics_blocks_stay_as_they_are(path: Path) -> None:
    use = {"type": "tool_use", "id": "t1", "name": "ls", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "a b"}
    session = only(
        read(
            path,
            [
                {"role": "user", "content": [{"type": "text", "text": "go"}]},
                {
                    "id": "msg_1",
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "text", "text": "a"}, use],
                },
                {"role": "user", "content": [result]},
                {"role": "assistant", "content": "Done."},
            ],
        )
    )
    assert said(session) == [("user", "go"), ("assistant", "a"), ("assistant", "Done.")]
    assert session.messages[1].content == [{"type": "text", "text": "a"}, use]
    assert session.messages[1].uid == "msg_1"
    assert session.messages[2].content == [result]
    assert [message.ends_turn for message in session.messages] == [False] * 4


def test_openais_calls_and_tools_are_kept_as_uses_and_results(path: Path) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "/"}'}}
    session = only(
        read(
            path,
            [
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": [{"type": "input_text", "text": "go"}, {"type": "image_url"}]},
                {"role": "assistant", "content": None, "tool_calls": [call, 5]},
                {"role": "tool", "tool_call_id": "c1", "content": "a b"},
                {"role": "assistant", "content": None, "function_call": {"name": "cat", "arguments": "{broken"}},
                {"role": "function", "name": "cat", "content": "c"},
                {"role": "assistant", "content": "Done.", "tool_calls": None, "function_call": None},
            ],
        )
    )
    assert said(session) == [("user", "go"), ("assistant", "Done.")]
    assert session.messages[2].content == [{"type": "tool_use", "id": "c1", "name": "ls", "input": {"path": "/"}}]
    assert session.messages[3].content == [{"type": "tool_result", "tool_use_id": "c1", "content": "a b"}]
    assert session.messages[4].content == [{"type": "tool_use", "id": None, "name": "cat", "input": "{broken"}]
    assert [message.subtype for message in session.messages].count("tool_result") == 2


def test_items_of_openais_responses_are_messages_too(path: Path) -> None:
    session = only(
        read(
            path,
            [
                {"role": "user", "content": "go"},
                {"type": "reasoning", "summary": []},
                {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "a b"},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
            ],
        )
    )
    assert said(session) == [("user", "go"), ("assistant", "Done.")]
    assert [message.uid for message in session.messages] == ["message-1", "message-3", "message-4", "message-5"]


def test_equal_words_at_one_time_stay_two(path: Path) -> None:
    times = [{**message, "created_at": 1_771_216_037} for message in [*TALK, *TALK[3:]]]
    session = only(read(path, times))
    assert len(session.messages) == 7
    assert session.last_record_at is not None


def test_entries_that_are_no_messages_are_reported_and_stop_nothing(path: Path) -> None:
    many = [{"role": "user", "content": "x"}] * 30
    strange: list[Any] = [5, None, {"role": ["x"], "content": ""}, {"role": "oracle", "content": "x"}, {"role": "user"}]
    transcript = read(path, [*TALK, *many, *strange, {"role": "user", "content": {"a": 1}}])
    assert len(only(transcript).messages) == 35
    assert [skipped.reason for skipped in transcript.skipped] == [f"message {n}: no message" for n in range(36, 41)]


@pytest.mark.parametrize(
    "document", [[], {}, [1], [TALK], {"messages": {}}, [{"role": "system", "content": "x"}], [{"name": "x"}], "words"]
)
def test_other_json_is_no_list_of_messages(path: Path, document: Any) -> None:
    with pytest.raises(base.UnreadableTranscript):
        read(path, document)
    assert importers.detect(path) is None


@needs_samples
def test_a_real_list_gives_what_was_counted_in_it_by_role() -> None:
    file = SAMPLES / "message_list" / "swe_observations.json"
    importer = importers.detect(file)
    assert isinstance(importer, message_list.MessageList)
    transcript = importer.read(file)
    assert counts(transcript) == (11, 10, 10)
    assert only(transcript).messages[0].type == "system"
