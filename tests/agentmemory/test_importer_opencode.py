from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agentmemory import importers
from agentmemory.importers import base, documents, opencode
from tests.support.talks import SAMPLES, counts, needs_samples, only, said

START = 1_771_216_037_742


def message(uid: str, role: str, *parts: Any, second: int = 0, **more: Any) -> dict[str, Any]:
    created = START + second * 1000
    time = {"created": created} if role == "user" else {"created": created, "completed": created + 500}
    return {"info": {"id": uid, "role": role, "time": time, **more}, "parts": list(parts)}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, "id": "prt_1", "sessionID": "ses_1", **more}


def read(path: Path, *messages: Any, settled_before: datetime | None = None, **info: Any) -> base.Transcript:
    if messages:
        path.write_text(json.dumps({"info": {"id": "ses_1", **info}, "messages": list(messages)}, indent=1))
    return opencode.OpenCode().read(path, settled_before=settled_before)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "export.json"


def test_d4_text_that_the_client_put_in_is_kept_and_is_no_speech(path: Path) -> None:
    file = {"type": "file", "mime": "text/plain", "url": "file:///a"}
    prompt = message("m1", "user", text("look"), file, text("Called the Read tool", synthetic=True))
    session = only(read(path, prompt, message("m2", "user", text("note", ignored=True))))
    assert said(session) == [("user", "look")]
    assert [block["type"] for block in session.messages[0].content if isinstance(block, dict)] == [
        "text", "file", "synthetic_text",
    ]  # fmt: skip


def test_an_answer_keeps_its_tools_and_thoughts_and_says_its_text(path: Path) -> None:
    tool = {
        "type": "tool",
        "callID": "c1",
        "tool": "read",
        "state": {"status": "completed", "input": {}, "output": "x"},
    }
    broken = {**tool, "callID": "c2", "state": {"status": "error", "input": {}, "error": "no"}}
    thought = {"type": "reasoning", "text": "hm", "metadata": {"encrypted": "gAAA"}}
    steps = [{"type": "step-start"}, {"type": "patch"}, {"type": "step-finish"}]
    session = only(read(path, message("m1", "assistant", *steps, thought, tool, broken, text("Done."))))
    assert session.messages[0].content == [
        {"type": "thinking", "thinking": "hm"},
        {"type": "tool_use", "id": "c1", "name": "read", "input": {}},
        {"type": "tool_result", "tool_use_id": "c1", "content": "x", "is_error": False},
        {"type": "tool_use", "id": "c2", "name": "read", "input": {}},
        {"type": "tool_result", "tool_use_id": "c2", "content": "no", "is_error": True},
        {"type": "text", "text": "Done."},
    ]
    assert said(session) == [("assistant", "Done.")]


def test_r6_several_answers_to_one_prompt_are_one_turn(path: Path) -> None:
    talk = [
        message("m1", "user", text("one"), second=1),
        message("m2", "assistant", text("a"), second=2, parentID="m1"),
        message("m3", "assistant", text("b"), second=3, parentID="m1"),
        message("m4", "user", text("two"), second=4),
    ]
    session = only(read(path, *talk))
    assert [entry.uid for entry in session.messages if entry.ends_turn] == ["m3"]
    assert session.messages[0].occurred_at == datetime(2026, 2, 16, 4, 27, 18, 742_000, tzinfo=UTC)
    assert session.last_record_at == datetime(2026, 2, 16, 4, 27, 21, 742_000, tzinfo=UTC)


def test_an_answer_that_was_broken_off_is_an_error(path: Path) -> None:
    session = only(read(path, message("m1", "assistant", text("half"), error={"name": "MessageAbortedError"})))
    assert session.messages[0].is_error


def test_d4_a_compactions_summary_is_no_speech(path: Path) -> None:
    summary = message("m1", "assistant", text("So far: …"), summary=True)
    prompt = message("m2", "user", text("go"), summary={"title": "Go"})
    assert said(only(read(path, summary, prompt))) == [("user", "go")]


def test_an_answer_that_is_not_completed_waits_while_the_session_is_written(path: Path) -> None:
    growing = message("m2", "assistant", text("a"), second=2, time={"created": START + 2000})
    talk = [message("m1", "user", text("one"), second=1), growing]
    assert len(only(read(path, *talk, settled_before=datetime(1970, 1, 2, tzinfo=UTC))).messages) == 1
    assert len(only(read(path, *talk, settled_before=datetime(2027, 1, 1, tzinfo=UTC))).messages) == 2


def test_the_session_names_itself_and_its_parent(path: Path) -> None:
    prompt = message("m1", "user", text("go"))
    session = only(read(path, prompt, title="Fix it", directory="/srv", version="1.2", parentID="ses_0"))
    assert (session.session_id, session.title) == ("ses_1", "Fix it")
    assert session.metadata == {"format": "opencode", "cwd": "/srv", "version": "1.2", "parent_session": "ses_0"}
    assert only(read(path, prompt, title="New session - 2026-02-16T04:27:17Z")).title == "go"


def test_messages_that_are_none_are_reported_and_stop_nothing(path: Path) -> None:
    good = message("m9", "user", text("go"))
    strange: list[Any] = [
        5, {}, {"info": [], "parts": []}, message("m 1", "user"), message("m2", "oracle"), {**good, "parts": 5},
        message("m3", "user", 5, {"type": ["x"]}, text("x", text={"a": 1})), message("m4", "assistant", time="now"),
    ]  # fmt: skip
    transcript = read(path, good, *strange)
    assert said(only(transcript)) == [("user", "go")]
    assert [skipped.reason.split(":")[0] for skipped in transcript.skipped] == [f"message {n}" for n in range(2, 8)]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"info": {"id": "s"}, "messages": 5}', '{"info": {"id"', "NaN"])
def test_what_is_no_export_cannot_be_read(path: Path, content: str) -> None:
    path.write_text(content)
    assert not opencode.OpenCode().recognises(path)
    with pytest.raises(base.UnreadableTranscript):
        read(path)


def test_a4_a_document_beyond_the_limit_is_not_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read(path, message("m1", "user", text("go")))
    monkeypatch.setattr(documents, "MAX_DOCUMENT", 20)
    assert not opencode.OpenCode().recognises(path)
    with pytest.raises(base.UnreadableTranscript):
        read(path)


@needs_samples
def test_a_real_export_gives_what_was_counted_in_it() -> None:
    file = SAMPLES / "opencode" / "export_aborted.json"
    importer = importers.detect(file)
    assert isinstance(importer, opencode.OpenCode)
    transcript = importer.read(file)
    assert counts(transcript) == (2, 1, 1)
    session = only(transcript)
    assert len(session.messages) == 8
    assert [entry.is_error for entry in session.messages] == [False] * 7 + [True]
