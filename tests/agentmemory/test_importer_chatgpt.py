from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agentmemory import importers
from agentmemory.importers import base, chatgpt
from tests.support.talks import only, said

START = 1_700_000_000.5
HIDDEN = {"is_visually_hidden_from_conversation": True}


def message(uid: str, role: str, *parts: Any, second: float = 0, kind: str = "text", **more: Any) -> dict[str, Any]:
    return {
        "id": uid,
        "author": {"role": role, "name": None, "metadata": {}},
        "create_time": START + second,
        "content": {"content_type": kind, "parts": list(parts)},
        "status": "finished_successfully",
        "weight": 1.0,
        "metadata": {},
        "recipient": "all",
        **more,
    }


def node(parent: str | None, message: dict[str, Any] | None) -> dict[str, Any]:
    return {"message": message, "parent": parent, "children": []}


def chain(*messages: dict[str, Any]) -> dict[str, Any]:
    """A tree that does not fork, with the root that every conversation has."""
    nodes = {"root": node(None, None)}
    for one in messages:
        nodes[one["id"]] = node(list(nodes)[-1], one)
    return nodes


def conversation(mapping: dict[str, Any], *, name: str = "c1", **more: Any) -> dict[str, Any]:
    return {
        "title": "Refunds",
        "create_time": START,
        "update_time": START + 60,
        "mapping": mapping,
        "current_node": list(mapping)[-1],
        "conversation_id": name,
        "id": name,
        **more,
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "conversations.json"


def read(path: Path, *conversations: Any, settled_before: datetime | None = None) -> base.Transcript:
    path.write_text(json.dumps(list(conversations)))
    return chatgpt.ChatGPT().read(path, settled_before=settled_before)


def test_a_conversation_is_a_session_with_its_title_and_times(path: Path) -> None:
    talk = conversation(chain(message("u", "user", "Hello.\n", second=1), message("a", "assistant", "Hi.", second=2)))
    session = only(read(path, talk))
    assert (session.session_id, session.title) == ("c1", "Refunds")
    assert said(session) == [("user", "Hello."), ("assistant", "Hi.")]
    assert session.messages[0].occurred_at == datetime(2023, 11, 14, 22, 13, 21, 500_000, tzinfo=UTC)
    assert session.last_record_at == datetime(2023, 11, 14, 22, 14, 20, 500_000, tzinfo=UTC)


def forked() -> dict[str, Any]:
    """A prompt that was edited, and an answer that was made three times."""
    return {
        "root": node(None, None),
        "u1": node("root", message("u1", "user", "First wording.")),
        "a1": node("u1", message("a1", "assistant", "Left behind.")),
        "u2": node("root", message("u2", "user", "Second wording.", second=5)),
        "b1": node("u2", message("b1", "assistant", "Once.", second=6)),
        "b2": node("u2", message("b2", "assistant", "Twice.", second=7)),
        "b3": node("u2", message("b3", "assistant", "Thrice.", second=8)),
    }


@pytest.mark.parametrize(
    ("current", "answer"), [("b2", "Twice."), ("b3", "Thrice."), ("gone", "Thrice."), (None, "Thrice.")]
)
def test_of_a_tree_the_path_that_the_person_sees_is_imported(path: Path, current: str | None, answer: str) -> None:
    session = only(read(path, conversation(forked(), current_node=current)))
    assert said(session) == [("user", "Second wording."), ("assistant", answer)]


def test_a_tree_that_goes_round_in_a_circle_ends(path: Path) -> None:
    talk = {"u": node("a", message("u", "user", "Q.")), "a": node("u", message("a", "assistant", "A."))}
    assert said(only(read(path, conversation(talk)))) == [("user", "Q."), ("assistant", "A.")]


def test_d4_what_nobody_typed_is_kept_and_is_no_speech(path: Path) -> None:
    instructions = message("i", "user", kind="user_editable_context")
    instructions["content"] = {"content_type": "user_editable_context", "user_profile": "I am Ada.", "parts": ["I am."]}
    session = only(
        read(
            path,
            conversation(
                chain(
                    message("s", "system", ""),
                    message(
                        "s2", "system", "You are a model.", metadata={"is_visually_hidden_from_conversation": True}
                    ),
                    instructions,
                    message("h", "user", "Hidden.", metadata=HIDDEN),
                    message("w", "user", "Weightless.", weight=0),
                    message("u", "user", "Draw it."),
                    message("t", "assistant", '{"prompt": "it"}', recipient="dalle.text2im"),
                    message("r", "tool", "Drawn.", author={"role": "tool", "name": "dalle.text2im"}),
                    message(
                        "th",
                        "assistant",
                        kind="thoughts",
                        content={"content_type": "thoughts", "thoughts": [{"content": "Hm."}]},
                    ),
                    message("a", "assistant", "There."),
                )
            ),
        )
    )
    assert said(session) == [("user", "Draw it."), ("assistant", "There.")]
    assert [(one.uid, one.type, one.subtype) for one in session.messages] == [
        ("s2", "system", "injected"),
        ("i", "user", "injected"),
        ("h", "user", "injected"),
        ("w", "user", "injected"),
        ("u", "user", ""),
        ("t", "assistant", ""),
        ("r", "user", "tool_result"),
        ("th", "assistant", ""),
        ("a", "assistant", ""),
    ]
    assert session.messages[5].content == [
        {"type": "tool_use", "id": "t", "name": "dalle.text2im", "input": {"input": '{"prompt": "it"}'}}
    ]
    assert [one.uid for one in session.messages if one.ends_turn] == []


def test_pictures_and_files_are_named_and_spoken_words_are_text(path: Path) -> None:
    picture = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://f", "size_bytes": 5}
    voice = {"content_type": "audio_transcription", "text": "What is this?", "direction": "in"}
    file = {"id": "f", "name": "plan.pdf", "size": 5, "mimeType": "application/pdf"}
    one = message("u", "user", picture, voice, "", kind="multimodal_text", metadata={"attachments": [file]})
    session = only(read(path, conversation(chain(one, message("a", "assistant", "A plan.")))))
    assert said(session)[0] == ("user", "What is this?")
    assert [block["type"] for block in session.messages[0].content if isinstance(block, dict)] == [
        "image_asset_pointer", "text", "attachment",
    ]  # fmt: skip


def test_deleted_messages_and_missing_times_are_no_fault(path: Path) -> None:
    talk = chain(message("u", "user", "Q."), message("a", "assistant", "A."))
    talk["gone"] = node("a", None)
    for one in ("u", "a"):
        talk[one]["message"]["create_time"] = None
    session = only(read(path, conversation(talk, create_time=None, update_time=None)))
    assert said(session) == [("user", "Q."), ("assistant", "A.")]
    assert (session.last_record_at, session.messages[0].occurred_at) == (None, None)


def test_an_answer_that_is_being_written_waits(path: Path) -> None:
    talk = conversation(chain(message("u", "user", "Q."), message("a", "assistant", "A", status="in_progress")))
    live = datetime(1971, 1, 1, tzinfo=UTC)
    assert [one.uid for one in only(read(path, talk, settled_before=live)).messages] == ["u"]
    assert [one.uid for one in only(read(path, talk)).messages] == ["u", "a"]


def test_one_bad_conversation_holds_up_none_of_the_others(path: Path) -> None:
    good = conversation(chain(message("u", "user", "Q."), message("x", "narrator", "Once upon a time.")))
    bad = conversation(chain(message("u", "user", "Q.")), conversation_id="no name!", id=None)
    transcript = read(path, good, bad, {"title": "none"}, 7)
    assert said(only(transcript)) == [("user", "Q.")]
    assert [entry.reason for entry in transcript.skipped] == [
        "conversation c1, message 2: its role is unknown",
        "conversation 2: it has no usable id",
        "conversation 3: it is none",
        "conversation 4: it is none",
    ]


def test_the_format_is_known_by_its_content(path: Path) -> None:
    talk = conversation(chain(message("u", "user", "Q.")))
    for document in ([talk], talk):
        path.write_text(json.dumps(document))
        found = importers.detect(path)
        assert found
        assert found.name == "chatgpt"
    path.write_text(json.dumps([{"title": "mapping", "mapping": []}]))
    assert importers.detect(path) is None
    with pytest.raises(base.UnreadableTranscript):
        chatgpt.ChatGPT().read(path)
