from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentmemory import importers, speech
from agentmemory.importers import base, bounds, claude_code, lines, skips

LIVE = datetime(1970, 1, 2, tzinfo=UTC)
"""Every session is newer than this: all are being written to."""

SAMPLES = Path(__file__).parents[3] / "shared" / "data" / "transcripts"
COUNTS = {
    # file below `claude_code/`: visible prompts, assistant messages with text, turns, message ids
    "compaction_interrupts.jsonl": (14, 29, 14, 55),
    "attachments/ef958aa1-0e93-49f0-bb71-150f63befcd1.jsonl": (2, 8, 2, 17),
    "inline_sidechain.jsonl": (0, 3, 0, 20),
    "rewind_progress.jsonl": (7, 8, 7, 9),
    "edge_cases.jsonl": (3, 2, 2, 4),
    "malformed_line.jsonl": (1, 1, 1, 1),
    "system_reminder.jsonl": (1, 1, 1, 1),
}
needs_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="the sample transcripts are not beside the checkout")


def user(uuid: str, content: Any, *, second: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "type": "user",
        "uuid": uuid,
        "sessionId": "s1",
        "timestamp": f"2026-01-01T10:00:{second:02}.000Z",
        "message": {"role": "user", "content": content},
        **more,
    }


def assistant(message_id: str, *blocks: Any, second: int = 0, model: str = "m", **more: Any) -> dict[str, Any]:
    return {
        "type": "assistant",
        "uuid": f"{message_id}-{second}",
        "sessionId": "s1",
        "timestamp": f"2026-01-01T10:00:{second:02}.000Z",
        "message": {"id": message_id, "role": "assistant", "model": model, "content": list(blocks)},
        **more,
    }


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def write(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def read(path: Path, *records: Any, settled_before: datetime | None = None) -> base.Transcript:
    if records:
        write(path, *records)
    return claude_code.ClaudeCode().read(path, settled_before=settled_before)


def only(transcript: base.Transcript) -> base.ImportedSession:
    (session,) = transcript.sessions
    return session


def speech_of(messages: Sequence[base.ImportedMessage]) -> list[base.ImportedMessage]:
    return [message for message in messages if is_speech(message)]


def is_speech(message: base.ImportedMessage) -> bool:
    return speech.is_speech(
        type=message.type,
        subtype=message.subtype,
        text=speech.visible_text(message.content),
        parent_tool_use_id=message.parent_tool_use_id,
    )


def turns(session: base.ImportedSession) -> int:
    """Prompts that got an answer before the next one; of these the importer marks all but a last one."""
    spoken = [message.type for message in speech_of(session.messages)]
    return sum(pair == ("user", "assistant") for pair in itertools.pairwise(spoken))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "session.jsonl"


# What a message is


def test_r6_lines_of_one_message_id_are_one_message_with_its_blocks_in_order(path: Path) -> None:
    tool = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}
    session = only(
        read(
            path,
            user("u1", "go", second=1),
            assistant("m1", {"type": "thinking", "thinking": "hm", "signature": "x"}, second=2),
            assistant("m1", text("Doing it."), second=3),
            assistant("m1", tool, second=4),
            user("u2", [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}], second=5, toolUseResult="ok"),
            assistant("m1", text("Done."), second=6),
        )
    )
    assert [message.uid for message in session.messages] == ["u1", "m1", "u2"]
    answer = session.messages[1]
    assert answer.type == "assistant"
    assert answer.occurred_at == datetime(2026, 1, 1, 10, 0, 2, tzinfo=UTC)
    assert speech.visible_text(answer.content) == "Doing it.\n\nDone."
    assert [block["type"] for block in answer.content if isinstance(block, dict)] == [
        "thinking", "text", "tool_use", "text",
    ]  # fmt: skip


def test_r2_lines_that_a_client_wrote_again_add_nothing(path: Path) -> None:
    history = [user("u1", "go", second=1), assistant("m1", text("a"), second=2), assistant("m1", text("b"), second=3)]
    renamed = [{**record, "uuid": f"again-{number}"} for number, record in enumerate(history)]
    once = only(read(path, *history))
    again = read(path, *history, *history, *renamed)
    assert only(again).messages == once.messages
    assert not again.skipped


def test_equal_prompts_at_different_times_stay_two(path: Path) -> None:
    session = only(read(path, user("u1", "yes", second=1), user("u2", "yes", second=2)))
    assert [message.uid for message in session.messages] == ["u1", "u2"]


def test_a_uuid_taken_by_other_words_is_reported_and_the_first_stays(path: Path) -> None:
    transcript = read(path, user("u1", "one"), user("u1", "two"), assistant("u1", text("three")))
    assert [message.content for message in only(transcript).messages] == ["one"]
    assert [skipped.line for skipped in transcript.skipped] == [2, 3]


def test_records_without_an_id_get_one_from_what_they_hold(path: Path) -> None:
    record = user("", "words")
    del record["uuid"]
    first, second = only(read(path, record, record, user("", "more"))).messages
    assert first.uid.startswith("line-")
    assert first.uid == only(read(path, record)).messages[0].uid != second.uid


def test_the_session_is_the_one_that_the_line_names_not_the_file(path: Path) -> None:
    sessions = read(path, user("u1", "a"), user("u1", "b", sessionId="s2"), user("u2", "c")).sessions
    assert {session.session_id: len(session.messages) for session in sessions} == {"s1": 2, "s2": 1}


@pytest.mark.parametrize("name", [None, 5, "", "a/b", "x" * 201, "a\x00"])
def test_a_message_without_a_usable_session_is_reported(path: Path, name: object) -> None:
    transcript = read(path, user("u1", "a", sessionId=name), user("u2", "b"))
    assert [message.uid for message in only(transcript).messages] == ["u2"]
    assert transcript.skipped == (base.Skipped(line=1, reason="no usable sessionId"),)


def test_the_title_is_the_first_line_that_the_person_said(path: Path) -> None:
    echo = user("u1", "<command-name>/clear</command-name>", second=1)
    words = user("u2", "<system-reminder>x</system-reminder>\n\nFix \ud800 the build\nplease", second=2)
    assert only(read(path, echo, words)).title == "Fix \ufffd the build"
    named = {"type": "custom-title", "customTitle": "Build", "sessionId": "s1"}
    assert only(read(path, echo, words, named)).title == "Build"


def test_where_and_with_what_the_session_ran_is_its_metadata(path: Path) -> None:
    session = only(
        read(path, user("u1", "a", cwd="/srv/app", gitBranch="main", version="2.1"), user("u2", "b", cwd="/x"))
    )
    assert session.metadata == {"format": "claude_code", "cwd": "/srv/app", "git_branch": "main", "version": "2.1"}


def test_r6_the_last_record_counts_whatever_it_is(path: Path) -> None:
    note = {"type": "system", "sessionId": "s1", "timestamp": "2026-01-01T12:00:00+02:00", "content": "x"}
    late = {"type": "system", "sessionId": "s1", "timestamp": "2026-01-01T10:30:00Z", "content": "x"}
    assert only(read(path, user("u1", "a", second=1), note)).last_record_at == datetime(
        2026, 1, 1, 10, 0, 1, tzinfo=UTC
    )
    assert only(read(path, user("u1", "a"), late)).last_record_at == datetime(2026, 1, 1, 10, 30, tzinfo=UTC)


@pytest.mark.parametrize("moment", [None, 5, "", "yesterday", "0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59Z"])
def test_a_time_that_is_none_is_no_time(path: Path, moment: object) -> None:
    session = only(read(path, user("u1", "a", timestamp=moment)))
    assert session.messages[0].occurred_at is None
    assert session.last_record_at is None


# What is speech


@pytest.mark.parametrize(
    "record",
    [
        user("u", "Caveat: The messages below were generated by the user while running local commands.", isMeta=True),
        user("u", "Expanded command", isMeta=True),
        user("u", "The conversation so far: …", isCompactSummary=True, isVisibleInTranscriptOnly=True),
        user("u", [{"type": "tool_result", "tool_use_id": "t", "content": "words"}]),
        user("u", ["words"], toolUseResult="words"),
        user("u", "words", isSidechain=True),
        user("u", "words", origin={"kind": "task-notification"}),
        user("u", "<bash-input>ls</bash-input>"),
        user("u", "[Request interrupted by user]"),
        assistant("m", text("API Error: 529 Overloaded"), model="<synthetic>", isApiErrorMessage=True),
        assistant("m", text("No response requested."), model="<synthetic>"),
        assistant("m", text("words"), isSidechain=True, agentId="a1"),
    ],
)
def test_d4_what_nobody_said_is_kept_and_is_no_speech(path: Path, record: dict[str, Any]) -> None:
    session = only(read(path, user("u0", "words", second=1), record))
    assert len(session.messages) == 2
    assert [message.uid for message in speech_of(session.messages)] == ["u0"]


def test_d4_an_error_that_the_client_wrote_in_the_models_place_is_an_error(path: Path) -> None:
    failed = assistant("m", text("API Error: 500"), model="<synthetic>", isApiErrorMessage=True)
    (message,) = only(read(path, failed)).messages
    assert (message.subtype, message.is_error) == ("api_error", True)


def test_words_beside_the_result_of_a_tool_are_the_persons(path: Path) -> None:
    content = [{"type": "tool_result", "tool_use_id": "t", "content": "x"}, text("and now the other")]
    assert len(speech_of(only(read(path, user("u", content))).messages)) == 1


@pytest.mark.parametrize(
    "record",
    [
        {"type": "summary", "summary": "words", "leafUuid": "u1"},
        {
            "type": "attachment",
            "sessionId": "s1",
            "uuid": "a",
            "attachment": {"type": "hook_success", "content": "words"},
        },
        {"type": "last-prompt", "sessionId": "s1", "lastPrompt": "words"},
        {"type": "queue-operation", "sessionId": "s1", "operation": "enqueue", "content": "words"},
        {"type": "progress", "sessionId": "s1", "data": {}},
        {"type": "something-new", "sessionId": "s1", "message": {"content": "words"}},
        assistant("m"),
        user("u", ""),
    ],
)
def test_records_that_are_no_messages_are_passed_over_in_silence(path: Path, record: dict[str, Any]) -> None:
    transcript = read(path, user("u0", "words"), record)
    assert len(only(transcript).messages) == 1
    assert not transcript.skipped


def test_sidechains_stay_in_place_under_their_agent(path: Path) -> None:
    session = only(
        read(
            path,
            user("u1", "go", second=1),
            user("side", "task", second=2, isSidechain=True, parentUuid=None),
            assistant("m1", text("inner"), second=3, isSidechain=True, agentId="a7"),
            assistant("m2", text("outer"), second=4),
            user("u2", "next", second=5),
        )
    )
    assert [(m.uid, m.parent_tool_use_id, m.ends_turn) for m in session.messages] == [
        ("u1", "", False), ("side", "sidechain", False), ("m1", "a7", False), ("m2", "", True), ("u2", "", False),
    ]  # fmt: skip


def test_a_file_that_is_a_subagents_thread_is_left_out_and_said_so(path: Path) -> None:
    transcript = read(
        path, user("u", "task", isSidechain=True, agentId="a"), assistant("m", text("x"), isSidechain=True)
    )
    assert not transcript.sessions
    assert [skipped.line for skipped in transcript.skipped] == [0]


def test_d4_a_session_of_the_products_own_extraction_is_never_imported(path: Path) -> None:
    prompt = user("u1", f"{speech.EXTRACTION_MARKER}\n[1] user: hi", second=2)
    caveat = user("u0", "x", isMeta=True, second=1)
    transcript = read(path, caveat, prompt, assistant("m1", text('{"memories": []}'), second=3))
    assert not transcript.sessions
    assert [skipped.line for skipped in transcript.skipped] == [2]


def test_d4_a_prompt_that_a_person_pasted_hides_itself_alone(path: Path) -> None:
    pasted = user("u2", f"Why this? {speech.EXTRACTION_MARKER}", second=2)
    session = only(read(path, user("u1", "Hello", second=1), pasted))
    assert [message.uid for message in speech_of(session.messages)] == ["u1"]


# Turns


def test_r6_a_turn_ends_with_the_last_answer_before_the_person_speaks_again(path: Path) -> None:
    session = only(
        read(
            path,
            user("u1", "one", second=1),
            assistant("m1", text("a"), second=2),
            user("r1", [{"type": "tool_result", "tool_use_id": "t", "content": "x"}], second=3),
            assistant("m2", text("b"), second=4),
            assistant("m3", {"type": "tool_use", "id": "t2", "name": "x", "input": {}}, second=5),
            user("i1", "[Request interrupted by user]", second=6),
            user("c1", "summary", isCompactSummary=True, second=7),
            user("u2", "two", second=8),
            user("u3", "three", second=9),
            assistant("m4", text("c"), second=10),
        )
    )
    assert [message.uid for message in session.messages if message.ends_turn] == ["m2"]


# Damage


def test_damaged_lines_are_reported_and_stop_nothing(path: Path) -> None:
    good = json.dumps(user("u1", "words")).encode()
    path.write_bytes(
        b"\xef\xbb\xbf" + good + b"\r\n"
        b"{broken\r\n"
        b"\n"
        b'"text"\n42\n[1]\nnull\n'
        b'{"silly": "this"}\n'
        b'{"type": "user", "sessionId": "s1", "message": "error"}\n'
        b'{"type": "user", "sessionId": "s1", "message": {"contenst": []}}\n'
        b'{"type": "user", "sessionId": "s1", "x": NaN}\n'
        b"\xff\xfe\x00\n" + b"[" * 200_000 + b"\n" + json.dumps(user("u2", "more")).encode() + b"\n" + good[:40]
    )
    transcript = read(path)
    assert [message.uid for message in only(transcript).messages] == ["u1", "u2"]
    assert [(skipped.line, skipped.reason) for skipped in transcript.skipped] == [
        (2, "not JSON"),
        (4, "not a JSON object"),
        (5, "not a JSON object"),
        (6, "not a JSON object"),
        (7, "not a JSON object"),
        (8, "no type"),
        (9, "its message is no object"),
        (10, "its message has no content"),
        (11, "not JSON"),
        (12, "not JSON"),
        (13, "nested too deeply"),
        (15, "not JSON: the file ends within it"),
    ]


def test_a_file_may_end_without_a_line_end(path: Path) -> None:
    path.write_text(json.dumps(user("u1", "words")))
    assert len(only(read(path)).messages) == 1


def test_a_line_beyond_the_limit_is_passed_over_without_being_held(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE", 1024)
    transcript = read(path, user("u1", "x" * 5000), user("u2", "short"))
    assert [message.uid for message in only(transcript).messages] == ["u2"]
    assert [skipped.line for skipped in transcript.skipped] == [1]


def test_a_flood_of_bad_lines_is_reported_as_a_number(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skips, "MAX_SKIPPED", 2)
    path.write_text("x\n" * 50 + json.dumps(user("u1", "words")))
    assert [skipped.reason for skipped in read(path).skipped] == ["not JSON", "not JSON", "48 more lines"]


def test_nul_and_lone_surrogates_pass_as_they_came(path: Path) -> None:
    (message,) = only(read(path, user("u1", "a\x00b\ud83dc"))).messages
    assert message.content == "a\x00b\ud83dc"


def test_a4_strings_lists_and_depth_have_an_end_and_say_so(path: Path) -> None:
    deep: Any = "bottom"
    for _ in range(100):
        deep = {"down": deep}
    content = [
        {"type": "tool_result", "tool_use_id": "t", "content": "x" * (bounds.MAX_STRING + 7)},
        {"type": "tool_result", "tool_use_id": "t", "content": deep},
        {"type": "tool_result", "tool_use_id": "t", "content": list(range(bounds.MAX_ITEMS + 5)), "n": 1e999},
        text("y" * (bounds.MAX_TEXT + 3)),
    ]
    path.write_text(json.dumps(user("u1", content)).replace("Infinity", "1e999"))
    (message,) = only(read(path)).messages
    kept = json.dumps(message.content, ensure_ascii=False, allow_nan=False)
    assert "…[7 more]" in kept
    assert "…[nested deeper]" in kept
    assert "…[5 more]" in kept
    assert "…[3 more]" in kept
    assert "bottom" not in kept


def test_a_file_of_another_kind_cannot_be_read(path: Path) -> None:
    path.write_bytes(b"\x00\x01\x02\n" * 10)
    assert importers.detect(path) is None
    with pytest.raises(base.UnreadableTranscript):
        read(path)


def test_a_file_that_does_not_open_cannot_be_read(path: Path) -> None:
    with pytest.raises(base.UnreadableTranscript):
        read(path)
    with pytest.raises(base.UnreadableTranscript):
        importers.detect(path)


def test_an_empty_file_holds_nothing(path: Path) -> None:
    path.write_text("")
    assert importers.detect(path) is None
    assert read(path) == base.Transcript(sessions=(), skipped=())


@pytest.mark.parametrize(
    "record",
    [
        user("u", "x"),
        {"type": "summary", "summary": "x", "leafUuid": "y"},
        {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
        {"type": "permission-mode", "sessionId": "s", "permissionMode": "plan"},
    ],
)
def test_a_session_file_is_known_by_what_it_holds(path: Path, record: dict[str, Any]) -> None:
    path.write_text("broken\n" + json.dumps(record))
    assert importers.detect(path) is importers.FORMATS["claude_code"]


@pytest.mark.parametrize(
    "record",
    [
        {"timestamp": "2026-01-01T00:00:00Z", "type": "session_meta", "payload": {"id": "x"}},
        {"role": "user", "content": "x"},
        {"info": {"id": "x"}, "messages": []},
        {"display": "x", "project": "/srv", "sessionId": "s", "timestamp": 1},
        {"type": "user", "content": "x"},
        [],
    ],
)
def test_other_formats_are_not_taken_for_this_one(path: Path, record: object) -> None:
    assert not claude_code.ClaudeCode().recognises(write(path, record))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KINDS = st.sampled_from(["user", "assistant", "system", "summary", "custom-title", "attachment"]) | VALUES
BLOCKS = st.lists(
    VALUES
    | st.fixed_dictionaries(
        {"type": st.sampled_from(["text", "tool_use", "tool_result"]) | VALUES}, optional={"text": VALUES}
    ),
    max_size=3,
)
RECORDS = st.fixed_dictionaries(
    {"type": KINDS, "sessionId": st.sampled_from(["s1", "s2"]) | VALUES},
    optional={
        "uuid": st.sampled_from(["a", "b", "c"]) | VALUES,
        "timestamp": st.datetimes().map(str) | VALUES,
        "isSidechain": st.booleans() | VALUES,
        "agentId": VALUES,
        "isMeta": st.booleans() | VALUES,
        "origin": VALUES,
        "cwd": VALUES,
        "message": VALUES
        | st.fixed_dictionaries(
            {"content": BLOCKS | VALUES}, optional={"id": st.sampled_from(["a", "m1", "m2"]) | VALUES, "model": VALUES}
        ),
    },
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300, deadline=None)
@given(records=st.lists(RECORDS | VALUES, max_size=8), tail=st.binary(max_size=30), live=st.booleans())
def test_any_lines_can_be_read(path: Path, records: list[Any], tail: bytes, live: bool) -> None:
    path.write_bytes(b"".join(json.dumps(record).encode() + b"\n" for record in records) + tail)
    importers.detect(path)
    try:
        transcript = read(path, settled_before=LIVE if live else None)
    except base.UnreadableTranscript:
        return
    for session in transcript.sessions:
        uids = [message.uid for message in session.messages]
        assert len(uids) == len(set(uids))
        json.dumps([message.content for message in session.messages], allow_nan=False)


# Files that grow


def assert_it_grew(before: base.Transcript, after: base.Transcript, *, whole: bool) -> None:
    """What was read stands in the later reading, in the same order; `whole`: and no message of it has changed."""
    later = {session.session_id: session.messages for session in after.sessions}
    for session in before.sessions:
        assert [m.uid for m in session.messages] == [m.uid for m in later[session.session_id]][: len(session.messages)]
        for then, now in zip(session.messages, later[session.session_id], strict=False):
            assert (then.type, then.subtype, then.parent_tool_use_id) == (now.type, now.subtype, now.parent_tool_use_id)
            assert now.ends_turn or not then.ends_turn
            assert now.content[: len(then.content)] == then.content
            assert now.content == then.content or not whole


def test_r2_an_answer_that_may_still_grow_is_held_back_with_what_follows_it(path: Path) -> None:
    records = [
        user("u1", "go", second=1),
        assistant("m1", text("a"), second=2),
        assistant("m2", text("b"), second=3),
        user("r1", [{"type": "tool_result", "tool_use_id": "t", "content": "x"}], second=4),
    ]
    assert [m.uid for m in only(read(path, *records, settled_before=LIVE)).messages] == ["u1", "m1"]
    assert [m.uid for m in only(read(path, *records)).messages] == ["u1", "m1", "m2", "r1"]
    settled = datetime(2026, 1, 1, 11, tzinfo=UTC)
    assert [m.uid for m in only(read(path, *records, settled_before=settled)).messages] == ["u1", "m1", "m2", "r1"]
    spoke = user("u2", "next", second=5)
    assert len(only(read(path, *records, spoke, settled_before=LIVE)).messages) == 5


def test_r2_a_subagent_holds_nothing_back_once_the_main_thread_went_on(path: Path) -> None:
    inner = assistant("m1", text("inner"), second=2, isSidechain=True)
    records = [user("u1", "go", second=1), inner]
    assert len(only(read(path, *records, settled_before=LIVE)).messages) == 1
    records += [assistant("m2", text("outer"), second=3), user("u2", "next", second=4)]
    assert len(only(read(path, *records, settled_before=LIVE)).messages) == 4


def test_r2_what_an_answer_grew_by_follows_it_under_a_uid_of_its_own() -> None:
    grown = base.ImportedMessage(uid="m1", type="assistant", content=["a", "b", "c"], occurred_at=None)
    rest = base.continuation(grown, after=2)
    assert (rest.uid, rest.content) == ("m1+2", ["c"])
    with pytest.raises(ValueError, match="blocks"):
        base.continuation(base.ImportedMessage(uid="u", type="user", content="x", occurred_at=None), after=1)


@needs_samples
@pytest.mark.parametrize("name", COUNTS)
def test_r2_a_file_read_while_it_grows_gives_the_same_messages(path: Path, name: str) -> None:
    data = (SAMPLES / "claude_code" / name).read_bytes()
    whole = claude_code.ClaudeCode().read(SAMPLES / "claude_code" / name)
    ends = [position for position, byte in enumerate(data) if byte == ord("\n")]
    for end in ends[:: max(1, len(ends) // 60)]:
        for cut in (end + 1, end - 20):
            path.write_bytes(data[:cut])
            try:
                assert_it_grew(read(path, settled_before=LIVE), whole, whole=True)
                assert_it_grew(read(path), whole, whole=False)
            except base.UnreadableTranscript:
                assert b"\n" not in data[:cut]


# Real files


@needs_samples
@pytest.mark.parametrize("name", COUNTS)
def test_r6_prompts_answers_and_turns_of_real_files_are_all_found(name: str) -> None:
    path = SAMPLES / "claude_code" / name
    assert importers.detect(path) is importers.FORMATS["claude_code"]
    sessions = read(path).sessions
    spoken = [message for session in sessions for message in speech_of(session.messages)]
    prompts, answers, all_turns, ids = COUNTS[name]
    assert sum(message.type == "user" for message in spoken) == prompts
    assert sum(message.type == "assistant" for message in spoken) == answers
    assert sum(turns(session) for session in sessions) == all_turns
    assert sum(message.type == "assistant" for session in sessions for message in session.messages) == ids
    for session in sessions:
        marked = sum(message.ends_turn for message in session.messages)
        last = speech_of(session.messages)[-1:]
        assert marked == turns(session) - bool(turns(session) and last[0].type == "assistant")


@needs_samples
def test_real_lines_that_are_no_records_are_reported() -> None:
    skipped = read(SAMPLES / "claude_code" / "edge_cases.jsonl").skipped
    assert [entry.line for entry in skipped] == [10, 11, 13, 14, 15, 16]
    assert [entry.line for entry in read(SAMPLES / "claude_code" / "malformed_line.jsonl").skipped] == [5]


@needs_samples
def test_the_words_around_a_reminder_are_the_prompt() -> None:
    prompt = only(read(SAMPLES / "claude_code" / "system_reminder.jsonl")).messages[0]
    said = speech.spoken(speech.visible_text(prompt.content))
    assert said.startswith("Please review the change.")
    assert said.endswith("The tail content still renders as user text.")
    assert "CLAUDE.md" not in said


@needs_samples
def test_a_real_subagents_file_is_left_out() -> None:
    (path,) = (SAMPLES / "claude_code" / "attachments").rglob("agent-*.jsonl")
    transcript = read(path)
    assert not transcript.sessions
    assert len(transcript.skipped) == 1


@needs_samples
@pytest.mark.parametrize("folder", ["codex", "opencode", "message_list"])
def test_real_files_of_other_formats_are_not_taken_for_this_one(folder: str) -> None:
    for path in (SAMPLES / folder).iterdir():
        assert not claude_code.ClaudeCode().recognises(path)
