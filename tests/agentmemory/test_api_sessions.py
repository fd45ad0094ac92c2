"""The JSON views of sessions and their messages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agentmemory.models import Message, Session
from tests.support.clients import Api, assistant, result, user

SESSION = {"id", "agent", "title", "metadata", "status", "last_seq", "terminal_seq", "distilled_seq", "execution"}
MESSAGE = {
    "uid", "seq", "type", "content", "delivery", "is_error", "tool_outcomes", "superseded_by", "retracted",
    "occurred_at",
}  # fmt: skip


def test_a_session_is_created_and_adopted(api: Api) -> None:
    made = api.put("/sessions/s1")
    assert made.status == 201
    assert made.body == {
        "id": "s1", "agent": "ada", "title": "", "metadata": {}, "status": "active", "last_seq": 0,
        "terminal_seq": 0, "distilled_seq": 0, "execution": None,
    }  # fmt: skip
    adopted = api.put("/sessions/s1", {"title": "  Title ", "metadata": {"cwd": "/x", "n": [1, {"deep": None}]}})
    assert adopted.status == 200
    assert adopted.body["title"] == "Title"
    assert adopted.body["metadata"] == {"cwd": "/x", "n": [1, {"deep": None}]}
    assert api.put("/sessions/s1", {"title": None}).body == adopted.body == api.get("/sessions/s1").body
    assert api.get("/sessions").body == {"items": [adopted.body], "next": None}


def test_r6_a_complete_session_is_finished_to_its_last_message(api: Api) -> None:
    api.say("s1", user("a"), assistant("b"))
    done = api.put("/sessions/s1", {"complete": True}).body
    assert (done["status"], done["last_seq"], done["terminal_seq"]) == ("complete", 2, 2)
    assert api.put("/sessions/s1", {"complete": False}).body["status"] == "active"


@pytest.mark.parametrize("name", ["s" * 200, "A-z0.9_:@-", ".", "..a"])
def test_a_session_id_may_have_these_characters(api: Api, name: str) -> None:
    assert api.put(f"/sessions/{name}").status == 201
    assert api.get(f"/sessions/{name}").body["id"] == name


@pytest.mark.parametrize("name", ["s" * 201, "a%20b", "a%00", "%C3%BC", "a%0A", "a+b", "%25"])
def test_a_session_id_of_other_characters_is_refused(api: Api, name: str) -> None:
    assert api.put(f"/sessions/{name}").status == 422
    assert api.get(f"/sessions/{name}").status == 404
    assert api.post(f"/sessions/{name}/messages", {"messages": []}).status == 404


@pytest.mark.parametrize(
    "body",
    [
        {"title": 5},
        {"title": "t" * 501},
        {"metadata": []},
        {"metadata": {"a": "x" * 20_000}},
        {"complete": "yes"},
        {"complete": 1},
        [],
        "text",
    ],
)
def test_a_session_of_another_shape_is_refused(api: Api, body: Any) -> None:
    assert api.put("/sessions/s1", body).status == 422
    assert api.get("/sessions/s1").status == 404


def test_unstorable_characters_in_a_session_are_replaced(api: Api) -> None:
    body = api.put("/sessions/s1", {"title": "a\0b\ud800", "metadata": {"k\0": "\ud800"}}).body
    assert body["title"] == "a\ufffdb\ufffd"
    assert body["metadata"] == {"k\ufffd": "\ufffd"}


def test_sessions_come_in_pages_with_the_newest_first(api: Api) -> None:
    for n in range(5):
        api.put(f"/sessions/s{n}")
    first = api.get("/sessions?limit=3").body
    rest = api.get(f"/sessions?limit=3&after={first['next']}").body
    assert [row["id"] for row in first["items"] + rest["items"]] == ["s4", "s3", "s2", "s1", "s0"]
    assert rest["next"] is None
    for after in ("x", "W10", "WzFlOTk5XQ", "Wzk5OTk5OTk5OTk5OTk5OTk5OTk5OV0"):
        assert api.get(f"/sessions?after={after}").status == 422


def test_messages_are_numbered_and_read_back(api: Api) -> None:
    done = api.say(
        "s1",
        user("u1", "Hello", occurred_at="2026-01-31T13:00:00.123456+01:00"),
        assistant("a1", [{"type": "text", "text": "Hi"}, {"type": "tool_use", "id": "t", "input": {"n": 1.5}}]),
        result("r1"),
        user("u2", "And?", delivery="enqueued"),
    )
    assert done == {"accepted": 4, "duplicates": 0, "last_seq": 4, "terminal_seq": 3}
    rows = api.get("/sessions/s1/messages").body
    assert rows["next"] is None
    assert [row["seq"] for row in rows["items"]] == [1, 2, 3, 4]
    assert set(rows["items"][0]) == MESSAGE
    assert rows["items"][0] == {
        "uid": "u1", "seq": 1, "type": "user", "content": "Hello", "delivery": "consumed", "is_error": False,
        "tool_outcomes": {}, "superseded_by": None, "retracted": False,
        "occurred_at": "2026-01-31T12:00:00.123456Z",
    }  # fmt: skip
    assert rows["items"][1]["content"][1]["input"] == {"n": 1.5}
    assert rows["items"][3]["delivery"] == "enqueued"
    page = api.get("/sessions/s1/messages?limit=2&after=1").body
    assert ([row["seq"] for row in page["items"]], page["next"]) == ([2, 3], "3")
    assert api.get(f"/sessions/s1/messages?after={page['next']}").body["items"][0]["uid"] == "u2"
    for query in ("after=x", "after=-1", "after=99999999999999999999", "limit=0", "limit=501"):
        assert api.get(f"/sessions/s1/messages?{query}").status == 422
    assert api.get("/sessions/s1").body["last_seq"] == 4


def test_r2_the_same_again_is_a_duplicate_and_other_content_a_conflict(api: Api) -> None:
    first = api.put("/sessions/s1")
    assert first.status == 201
    assert api.post("/sessions/s1/messages", {"messages": [user("u1", "Hello")]}).status == 201
    again = api.post("/sessions/s1/messages", {"messages": [user("u1", "Hello")]})
    assert again.status == 200
    assert again.body == {"accepted": 0, "duplicates": 1, "last_seq": 1, "terminal_seq": 0}
    conflict = api.post("/sessions/s1/messages", {"messages": [user("u2"), user("u1", "Other")]})
    assert (conflict.status, conflict.kind) == (409, "uid-conflict")
    twice = api.post("/sessions/s1/messages", {"messages": [user("u3", "one"), user("u3", "two")]})
    assert (twice.status, twice.kind) == (409, "uid-conflict")
    assert Message.objects.count() == 1


def test_r3_hostile_text_is_replaced_and_stops_nothing(api: Api) -> None:
    blocks = [{"type": "text", "text": "a\0\ud83d"}, {"type": "tool_result", "k\0": "\udc00", "n": None}]
    done = api.say("s1", user("u1", "nul \0 lone \ud800"), assistant("a1", blocks, subtype="x\0"))
    assert done["accepted"] == 2
    rows = api.get("/sessions/s1/messages").body["items"]
    assert rows[0]["content"] == "nul \ufffd lone \ufffd"
    assert rows[1]["content"][0]["text"] == "a\ufffd\ufffd"
    same = api.post("/sessions/s1/messages", {"messages": [user("u1", "nul \0 lone \ud800")]})
    assert same.body["duplicates"] == 1


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"uid": "u", "type": "user"},
        {"uid": "u", "type": "user", "content": None},
        {"uid": "u", "type": "user", "content": 42},
        {"uid": "u", "type": "user", "content": {"type": "text"}},
        {"uid": "u", "type": "robot", "content": ""},
        {"uid": "", "type": "user", "content": ""},
        {"uid": "  ", "type": "user", "content": ""},
        {"uid": 7, "type": "user", "content": ""},
        {"uid": "u" * 201, "type": "user", "content": ""},
        {"uid": "u\0", "type": "user", "content": ""},
        {"uid": "\ud800", "type": "user", "content": ""},
        {"uid": "u", "type": "user", "content": "", "delivery": "lost"},
        {"uid": "u", "type": "user", "content": "", "supersedes": "x"},
        {"uid": "u", "type": "user", "content": "", "supersedes": ["x" * 201]},
        {"uid": "u", "type": "user", "content": "", "supersedes": ["\0"]},
        {"uid": "u", "type": "user", "content": "", "is_error": "no"},
        {"uid": "u", "type": "user", "content": "", "occurred_at": "2026-01-01"},
        {"uid": "u", "type": "user", "content": "", "occurred_at": 1767225600},
        {"uid": "u", "type": "user", "content": "", "occurred_at": "9999-12-31T23:00:00-02:00"},
        {"uid": "u", "type": "user", "content": "", "subtype": 5},
        "text",
        None,
    ],
)
def test_a_message_of_another_shape_refuses_the_whole_call(api: Api, message: Any) -> None:
    api.put("/sessions/s1")
    answer = api.post("/sessions/s1/messages", {"messages": [user("fine"), message]})
    assert answer.status == 422, answer
    assert answer.body["errors"][0]["field"].startswith("body.messages.1")
    assert Message.objects.count() == 0


def test_content_that_is_nested_without_end_is_refused(api: Api) -> None:
    api.put("/sessions/s1")
    for depth in (200, 2_000, 100_000):
        content = b"[" * depth + b"]" * depth
        raw = b'{"messages": [{"uid": "u", "type": "user", "content": %s}]}' % content
        assert api.call("POST", "/sessions/s1/messages", raw=raw).status == 422


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5_000])
def test_numbers_that_json_does_not_have_are_refused(api: Api, number: str) -> None:
    api.put("/sessions/s1")
    raw = json.dumps({"messages": [user("u", ["here"])]}).replace('"here"', number)
    assert api.call("POST", "/sessions/s1/messages", raw=raw.encode()).status == 422


def test_odd_json_that_is_json_is_kept(api: Api) -> None:
    api.put("/sessions/s1")
    raw = b'{"messages": [{"uid": "u", "uid": "v", "type": "user", "content": [1.5e-3, %s, {"a": 1, "a": 2}]}]}'
    assert api.call("POST", "/sessions/s1/messages", raw=raw % (b"9" * 400)).status == 201
    row = api.get("/sessions/s1/messages").body["items"][0]
    assert row["uid"] == "v"
    assert row["content"] == [0.0015, int("9" * 400), {"a": 2}]


def test_a4_a_call_has_at_most_a_thousand_messages(api: Api) -> None:
    api.put("/sessions/s1")
    messages = [user(f"u{n}", "x") for n in range(1_001)]
    answer = api.post("/sessions/s1/messages", {"messages": messages})
    assert answer.status == 413
    assert answer.kind == "blank"
    assert api.post("/sessions/s1/messages", {"messages": messages[:1_000]}).body["accepted"] == 1_000
    assert api.post("/sessions/s1/messages", {"messages": []}).body["accepted"] == 0


def test_a4_a_call_has_at_most_eight_mebibytes(api: Api) -> None:
    api.put("/sessions/s1")

    def sized(length: int) -> bytes:
        frame = json.dumps({"messages": [user("u", "")]}).encode()
        return frame.replace(b'"content": ""', b'"content": "' + b"x" * (length - len(frame)) + b'"')

    limit = 8 * 1024 * 1024
    assert api.call("POST", "/sessions/s1/messages", raw=sized(limit + 1)).status == 413
    assert api.call("POST", "/sessions/s1/messages", raw=sized(10 * 1024 * 1024)).status == 413
    assert api.call("POST", "/sessions/s1/messages", raw=sized(limit)).status == 201


def test_ten_thousand_messages_take_a_constant_number_of_queries_a_call(api: Api) -> None:
    counts: list[int] = []

    def counting(execute: Any, *call: Any) -> Any:
        counts[-1] += 1
        return execute(*call)

    def send(*messages: dict[str, Any]) -> int:
        counts.append(0)
        return int(api.post("/sessions/s1/messages", {"messages": list(messages)}).body["last_seq"])

    api.put("/sessions/s1")
    with connection.execute_wrapper(counting):
        send(user("first"), result("r"))
        counts.clear()
        for start in range(0, 10_000, 500):
            send(*(user(f"u{n}", f"Message {n}") for n in range(start, start + 499)), result(f"r{start}"))
        assert send(user("last", "One more."), result("end")) == 10_004
    assert len(set(counts)) == 1


def test_an_execution_that_nobody_granted_is_lost_and_writes_nothing(api: Api) -> None:
    api.put("/sessions/s1")
    body = {"messages": [user("u1")], "execution": {"id": "e1", "epoch": 1}}
    answer = api.post("/sessions/s1/messages", body)
    assert (answer.status, answer.kind) == (409, "lease-lost")
    assert Message.objects.count() == 0
    assert api.post("/sessions/nope/messages", body).status == 404
    for wrong in ({"id": "e1"}, {"epoch": 1}, {"id": "e1", "epoch": "1"}, "e1"):
        assert api.post("/sessions/s1/messages", {"messages": [], "execution": wrong}).status == 422


def test_r4_delivery_changes_in_place(api: Api) -> None:
    api.say("s1", user("u/1", delivery="enqueued"), assistant("a1"))
    changed = api.patch("/sessions/s1/messages/u%2F1", {"delivery": "consumed"})
    assert changed.status == 200
    assert changed.body["delivery"] == "consumed"
    assert api.patch("/sessions/s1/messages/a1", {"delivery": "failed"}).status == 422
    assert api.patch("/sessions/s1/messages/u%2F1", {"delivery": "eaten"}).status == 422
    assert api.patch("/sessions/s1/messages/u%2F1", {}).status == 422
    assert api.patch("/sessions/s1/messages/none", {"delivery": "failed"}).status == 404
    assert api.patch("/sessions/s1/messages/%00", {"delivery": "failed"}).status == 404


def test_r5_messages_are_taken_back_before_and_after_they_arrive(api: Api) -> None:
    api.say("s1", user("u1"), user("u2"))
    answer = api.post("/sessions/s1/retractions", {"uids": ["u1", "later"], "reason": "a mistake"})
    assert (answer.status, answer.body) == (200, {"retracted": 1})
    assert api.post("/sessions/s1/retractions", {"uids": ["u1"]}).body == {"retracted": 0}
    api.say("s1", user("later"), user("u3", supersedes=["u2", "u4"]), user("u4"))
    rows = {row["uid"]: row for row in api.get("/sessions/s1/messages").body["items"]}
    assert [uid for uid, row in rows.items() if row["retracted"]] == ["u1", "later"]
    assert {uid: row["superseded_by"] for uid, row in rows.items()} == {
        "u1": None, "u2": "u3", "later": None, "u3": None, "u4": "u3",
    }  # fmt: skip
    for body in ({}, {"uids": "u1"}, {"uids": ["\0"]}, {"uids": ["u1"], "reason": "\ud800"}, {"uids": ["u"] * 1001}):
        assert api.post("/sessions/s1/retractions", body).status == 422


def test_r1_a_rewind_removes_what_is_later_and_uses_no_number_again(api: Api) -> None:
    api.say("s1", user("u1"), result("r1"), user("u2"), result("r2"))
    answer = api.post("/sessions/s1/rewind", {"after_uid": "r1"})
    assert (answer.status, answer.body) == (200, {"removed": 2, "last_seq": 4})
    assert api.say("s1", user("u5"))["last_seq"] == 5
    assert [row["seq"] for row in api.get("/sessions/s1/messages").body["items"]] == [1, 2, 5]
    assert api.post("/sessions/s1/rewind", {"after_uid": "u2"}).status == 404
    assert api.post("/sessions/s1/rewind", {}).status == 422
    assert api.post("/sessions/s1/rewind", {"after_uid": "\ud800"}).status == 422


def test_r7_a_deleted_session_starts_afresh(api: Api) -> None:
    api.say("s1", user("u1"), result("r1"))
    assert api.delete("/sessions/s1?memories=lose").status == 422
    assert api.delete("/sessions/s1?memories=keep").body == {"deleted": True}
    assert api.delete("/sessions/s1").status == 404
    assert api.get("/sessions/s1/messages").status == 404
    assert api.say("s1", user("u1"))["last_seq"] == 1


# --- whose ---


def test_a_session_is_its_agents_alone(api: Api, other: Api) -> None:
    api.say("s1", user("u1", "canary"))
    calls: list[tuple[str, str, Any]] = [
        ("GET", "/sessions/s1", None),
        ("DELETE", "/sessions/s1", None),
        ("GET", "/sessions/s1/messages", None),
        ("POST", "/sessions/s1/messages", {"messages": [user("u2")]}),
        ("PATCH", "/sessions/s1/messages/u1", {"delivery": "failed"}),
        ("POST", "/sessions/s1/retractions", {"uids": ["u1"]}),
        ("POST", "/sessions/s1/rewind", {"after_uid": "u1"}),
        ("POST", "/sessions/s1/distill", None),
    ]
    for method, path, body in calls:
        theirs = other.call(method, path, body)
        assert theirs.status == 404, path
        assert theirs.told == other.call(method, path.replace("s1", "none"), body).told
    assert other.put("/sessions/s1").status == 201
    assert other.get("/sessions/s1").body["last_seq"] == 0
    assert api.get("/sessions/s1").body["last_seq"] == 1


def test_a_space_token_names_the_owner_of_a_session(api: Api, other: Api, whole_space: Api) -> None:
    assert whole_space.put("/sessions/s1").status == 422
    assert whole_space.put("/sessions/s1?owner=nobody").status == 404
    assert whole_space.put("/sessions/s1?owner=ada").status == 201
    assert api.get("/sessions/s1").body["agent"] == "ada"
    assert whole_space.post("/sessions/s1/messages", {"messages": [user("u1")]}).status == 201
    other.put("/sessions/s1")
    assert whole_space.get("/sessions/s1").status == 404, "two agents have one of this id"
    assert whole_space.get("/sessions/s1?owner=ada").body["last_seq"] == 1
    assert whole_space.get("/sessions/s1?owner=grace").body["last_seq"] == 0
    assert len(whole_space.get("/sessions").body["items"]) == 2
    assert [row["agent"] for row in whole_space.get("/sessions?owner=ada").body["items"]] == ["ada"]
    assert whole_space.get("/sessions?owner=%00").status == 422


def test_an_agent_token_names_no_owner_of_sessions(api: Api) -> None:
    api.say("s1", user("u1"))
    calls: list[tuple[str, str, Any]] = [
        ("PUT", "/sessions/s1", None),
        ("GET", "/sessions/s1", None),
        ("GET", "/sessions", None),
        ("GET", "/distillation", None),
        ("GET", "/sessions/s1/messages", None),
        ("POST", "/sessions/s1/messages", {"messages": []}),
        ("DELETE", "/sessions/s1", None),
    ]
    for method, path, body in calls:
        assert api.call(method, f"{path}?owner=ada", body).status == 422, path
    assert Session.objects.count() == 1


def test_a_list_of_sessions_takes_as_many_queries_for_many_as_for_few(api: Api) -> None:
    def queries(path: str) -> int:
        with CaptureQueriesContext(connection) as captured:
            assert api.get(path).status == 200
        return len(captured)

    paths = ("/sessions?limit=500", "/distillation?limit=500", "/sessions/s0/messages?limit=500")
    api.say("s0", user("u"), result("r"))
    api.get("/sessions")
    few = [queries(path) for path in paths]
    for n in range(1, 30):
        api.say(f"s{n}", user("u"), result("r"))
        api.say("s0", user(f"u{n}"), result(f"r{n}"))
    assert [queries(path) for path in paths] == few
