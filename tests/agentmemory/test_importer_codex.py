from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agentmemory import importers
from agentmemory.importers import base, codex
from tests.support.talks import SAMPLES, counts, needs_samples, only, said, speech_of

LIVE = datetime(1970, 1, 2, tzinfo=UTC)
"""Every session is newer than this: all are being written to."""

META = {"id": "thread-1", "timestamp": "2026-01-01T10:00:00Z", "cwd": "/srv/app", "cli_version": "0.9"}


def line(what: str, second: int = 0, **payload: Any) -> dict[str, Any]:
    return {"timestamp": f"2026-01-01T10:00:{second:02}.000Z", "type": what, "payload": payload}


def meta(**more: Any) -> dict[str, Any]:
    return line("session_meta", **{**META, **more})


def event(name: str, words: str, second: int = 0, **more: Any) -> dict[str, Any]:
    return line("event_msg", second, type=name, message=words, **more)


def item(role: str, *texts: str, second: int = 0) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": words} for words in texts]
    return line("response_item", second, type="message", role=role, content=content)


def end(words: str | None, second: int = 0) -> dict[str, Any]:
    return line("event_msg", second, type="task_complete", last_agent_message=words)


def prompt(words: str, second: int = 0) -> list[dict[str, Any]]:
    return [item("user", words, second=second), event("user_message", words, second)]


def answer(words: str, second: int = 0) -> list[dict[str, Any]]:
    return [event("agent_message", words, second), item("assistant", words, second=second)]


def read(path: Path, *records: Any, settled_before: datetime | None = None) -> base.Transcript:
    if records:
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return codex.Codex().read(path, settled_before=settled_before)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rollout.jsonl"


def test_what_stands_twice_and_a_third_time_is_said_once(path: Path) -> None:
    session = only(read(path, meta(), *prompt("go", 1), *answer("Looking.", 2), *answer("Done.", 3), end("Done.", 4)))
    assert said(session) == [("user", "go"), ("assistant", "Looking."), ("assistant", "Done.")]


@pytest.mark.parametrize("kept", [0, 1])
def test_either_of_the_two_is_enough(path: Path, kept: int) -> None:
    records = [prompt("go", 1)[kept], answer("Done.", 2)[kept]]
    assert said(only(read(path, meta(), *records))) == [("user", "go"), ("assistant", "Done.")]


def test_an_answer_that_cites_in_one_record_alone_is_said_once(path: Path) -> None:
    cited = item("assistant", "Done.\n", "<oai-mem-citation>x</oai-mem-citation>", second=2)
    session = only(read(path, meta(), *prompt("go", 1), event("agent_message", "Done.", 2), cited))
    assert said(session) == [("user", "go"), ("assistant", "Done.")]


def test_words_that_are_said_again_stay_two(path: Path) -> None:
    talk = [
        *prompt("yes", 1),
        *answer("Done.", 2),
        end("Done.", 2),
        *prompt("yes", 3),
        *answer("Done.", 4),
        end("Done."),
    ]
    session = only(read(path, meta(), *talk))
    assert said(session) == [("user", "yes"), ("assistant", "Done.")] * 2
    assert len({message.uid for message in session.messages}) == 4


def test_an_answer_that_stands_in_the_tasks_end_alone_is_said(path: Path) -> None:
    session = only(read(path, meta(), event("user_message", "go", 1), end("Done.", 2), end(None, 3)))
    assert said(session) == [("user", "go"), ("assistant", "Done.")]
    assert [message.ends_turn for message in session.messages] == [False, True]


def test_r6_a_tasks_end_ends_a_turn_and_so_does_the_next_prompt(path: Path) -> None:
    talk = [*prompt("one", 1), *answer("a", 2), *answer("b", 3), end("b", 4), *prompt("two", 5), *answer("c", 6)]
    session = only(read(path, meta(), *talk, *prompt("three", 7)))
    assert [speech for speech in said(session) if speech[0] == "assistant"] == [
        ("assistant", "a"), ("assistant", "b"), ("assistant", "c"),
    ]  # fmt: skip
    assert [message.ends_turn for message in session.messages] == [False, False, True, False, True, False]


def test_d4_what_the_client_put_in_is_kept_and_is_no_speech(path: Path) -> None:
    session = only(
        read(
            path,
            meta(),
            item("developer", "Sandbox rules"),
            item("user", "# AGENTS.md instructions for /srv"),
            item("user", "<environment_context>x</environment_context>"),
            item("user", "<skill>How to do it</skill>"),
            *prompt("go", 1),
            event("user_message", "Rules of the house", 2, kind="user_instructions"),
            line("compacted", 3, message="What happened so far"),
            *answer("Done.", 4),
        )
    )
    assert said(session) == [("user", "go"), ("assistant", "Done.")]
    assert [message.subtype for message in session.messages] == [
        "", "injected", "injected", "injected", "", "injected", "compact_summary", "",
    ]  # fmt: skip
    assert session.messages[0].type == "system"


def test_tools_stay_in_the_transcript_and_reasoning_does_not(path: Path) -> None:
    session = only(
        read(
            path,
            meta(),
            *prompt("go", 1),
            line("response_item", 2, type="reasoning", encrypted_content="gAAA"),
            line("response_item", 2, type="function_call", name="exec", arguments='{"cmd": "ls"}', call_id="c1"),
            line("response_item", 3, type="function_call_output", call_id="c1", output="a b"),
            line("response_item", 4, type="web_search_call", action={"query": "x"}),
            line("response_item", 4, type="future_thing", text="words"),
            *answer("Done.", 5),
        )
    )
    assert [(message.type, message.subtype) for message in session.messages] == [
        ("user", ""), ("assistant", ""), ("user", "tool_result"), ("assistant", ""), ("assistant", ""),
    ]  # fmt: skip
    assert session.messages[1].content == [{"type": "tool_use", "id": "c1", "name": "exec", "input": {"cmd": "ls"}}]
    assert session.messages[2].content == [{"type": "tool_result", "tool_use_id": "c1", "content": "a b"}]
    assert [message.uid for message in session.messages[1:3]] == ["c1", "c1:output"]
    assert len(speech_of(session.messages)) == 2


def test_a_prompt_with_a_picture_is_one_prompt(path: Path) -> None:
    pictured = item("user", "<image name=[Image #1]>", "</image>", "What is this?", second=1)
    pictured["payload"]["content"].insert(1, {"type": "input_image", "image_url": "data:"})
    session = only(read(path, meta(), pictured, event("user_message", "What is this?", 1)))
    assert said(session) == [("user", "What is this?")]
    assert [block["type"] for block in session.messages[0].content if isinstance(block, dict)] == [
        "input_image",
        "text",
    ]


def test_a_thread_that_goes_on_from_another_leaves_that_ones_records_out(path: Path) -> None:
    source = {"subagent": {"thread_spawn": {"parent_thread_id": "thread-0"}}}
    for more in ({"source": source}, {"forked_from_id": "thread-0"}):
        own = meta(timestamp="2026-01-01T10:00:10Z", **more)
        session = only(
            read(path, own, meta(id="thread-0"), *prompt("old", 5), *prompt("new", 11), *answer("Done.", 12))
        )
        assert session.session_id == "thread-1"
        assert session.metadata["parent_session"] == "thread-0"
        assert said(session) == [("user", "new"), ("assistant", "Done.")]


def test_records_older_than_a_thread_of_its_own_stay(path: Path) -> None:
    session = only(read(path, meta(timestamp="2026-01-01T10:00:10Z"), *prompt("early", 5)))
    assert said(session) == [("user", "early")]


def test_the_session_is_told_by_its_first_record_or_else_by_the_files_name(tmp_path: Path) -> None:
    thread = "019e1625-789d-76c0-80ab-3724b5ddb799"
    path = tmp_path / f"rollout-2026-05-11T11-26-55-{thread}.jsonl"
    session = only(read(path, *prompt("go", 1)))
    assert session.session_id == thread
    session = only(read(path, meta(git={"branch": "main"}), *prompt("go", 1)))
    assert session.session_id == "thread-1"
    assert session.metadata == {"format": "codex", "cwd": "/srv/app", "version": "0.9", "git_branch": "main"}
    with pytest.raises(base.UnreadableTranscript):
        read(tmp_path / "rollout.jsonl", *prompt("go", 1))


def test_damaged_lines_are_reported_and_stop_nothing(path: Path) -> None:
    records = [
        meta(), "words", {"payload": {}}, {"type": ["x"]}, {"type": "event_msg"}, {"type": "new", "payload": {}},
        line("event_msg", 1, type=["x"], message={"a": 1}),
        line("response_item", 1, type="message", role=5, content=[1]),
        line("response_item", 1, type={}, role="user"), line("response_item", 1, type="message", role="user"),
        event("agent_message", "  "), *prompt("go", 2),
    ]  # fmt: skip
    read(path, *records)
    path.write_bytes(path.read_bytes() + b"{broken\n" + b"[" * 100_000 + b"\n")
    transcript = read(path)
    assert said(only(transcript)) == [("user", "go")]
    assert [skipped.line for skipped in transcript.skipped] == [2, 3, 4, 5, 8, 14, 15]


def test_a_file_without_a_record_of_codex_cannot_be_read(path: Path) -> None:
    with pytest.raises(base.UnreadableTranscript):
        read(path, {"role": "user", "content": "x"})
    assert not codex.Codex().recognises(path)


def test_r2_a_file_that_grows_line_by_line_gives_each_message_the_same_each_time(path: Path) -> None:
    talk = [
        meta(), item("user", "<skill>x</skill>"), *prompt("go", 1), *answer("a", 2), *answer("a", 3), end("a", 4),
        *prompt("go", 5), event("user_message", "stop", 6), item("user", "stop", second=6), *answer("b", 7), end("b"),
    ]  # fmt: skip
    whole = only(read(path, *talk)).messages
    for count in range(1, len(talk) + 1):
        for session in read(path, *talk[:count], settled_before=LIVE).sessions:
            for now, later in zip(session.messages, whole, strict=False):
                assert (now.uid, now.type, now.content, now.subtype) == (
                    later.uid, later.type, later.content, later.subtype,
                )  # fmt: skip
                assert later.ends_turn or not now.ends_turn


def test_a_users_item_waits_for_its_event_while_the_session_is_written(path: Path) -> None:
    talk = [meta(), *prompt("one", 1), *answer("a", 2), item("user", "two", second=3)]
    assert [message[1] for message in said(only(read(path, *talk, settled_before=LIVE)))] == ["one", "a"]
    assert len(only(read(path, *talk, event("user_message", "two", 3), settled_before=LIVE)).messages) == 3


@needs_samples
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rollout_normal", (2, 13, 2)),
        ("rollout_malformed", (1, 1, 1)),
        ("rollout_fork_parent", (1, 0, 0)),
        ("rollout_fork_child", (1, 1, 1)),  # without the prompt that it repeats from its parent
    ],
)
def test_real_files_give_what_was_counted_in_them(name: str, expected: tuple[int, int, int]) -> None:
    file = SAMPLES / "codex" / f"{name}.jsonl"
    importer = importers.detect(file)
    assert isinstance(importer, codex.Codex)
    assert counts(importer.read(file)) == expected


@needs_samples
def test_a_real_file_holds_each_use_of_a_tool_once() -> None:
    session = only(read(SAMPLES / "codex" / "rollout_normal.jsonl"))
    blocks = itertools.chain.from_iterable(message.content for message in session.messages)
    kinds = [block.get("type") for block in blocks if isinstance(block, dict)]
    assert (kinds.count("tool_use"), kinds.count("tool_result")) == (105, 102)
