"""The JSON views of how far sessions have been distilled."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from agentmemory.services import spaces
from distillation.models import Cursor, Quarantine
from tests.support.clients import Api, result, user

FIELDS = {
    "session", "agent", "position", "watermark", "lag", "failures", "next_attempt_at", "last_error", "state", "reason",
    "quarantined",
}  # fmt: skip


def test_cursors_tell_how_far_and_why_not_further(api: Api) -> None:
    api.say("s1", user("u1"), result("r1"), user("u2"))
    answer = api.get("/distillation")
    assert answer.status == 200
    (row,) = answer.body["items"]
    assert set(row) == FIELDS
    assert {name: row[name] for name in FIELDS - {"reason"}} == {
        "session": "s1", "agent": "ada", "position": 0, "watermark": 2, "lag": 2, "failures": 0,
        "next_attempt_at": None, "last_error": "", "state": "due", "quarantined": [],
    }  # fmt: skip
    assert row["reason"]
    assert answer.body["next"] is None


def test_d3_the_watermark_stands_before_what_is_not_delivered(api: Api) -> None:
    api.say("s1", user("u1"), result("r1"), user("u2", delivery="enqueued"), result("r2"))
    assert api.get("/distillation").body["items"][0]["watermark"] == 2
    api.patch("/sessions/s1/messages/u2", {"delivery": "consumed"})
    assert api.get("/distillation").body["items"][0]["watermark"] == 4


def test_each_state_has_its_word(api: Api) -> None:
    api.say("s1", user("u1"), result("r1"))
    cursors = Cursor.objects.all()

    def state() -> str:
        return str(api.get("/distillation").body["items"][0]["state"])

    soon = timezone.now() + timedelta(hours=1)
    assert state() == "due"
    cursors.update(next_attempt_at=soon, failures=2, last_error="canary: overloaded")
    assert state() == "backing_off"
    row = api.get("/distillation").body["items"][0]
    assert (row["failures"], row["last_error"]) == (2, "canary: overloaded")
    assert row["next_attempt_at"].endswith("Z")
    assert api.agent is not None
    spaces.pause_agent(agent_id=api.agent.pk)
    assert state() == "blocked"
    spaces.resume_agent(agent_id=api.agent.pk)
    cursors.update(next_attempt_at=None, holder="w1", expires_at=soon)
    assert state() == "running"
    cursors.update(holder="", expires_at=None, waits_for="skipped: provider acp cannot be used")
    assert state() == "skipped"
    cursors.update(position=2)
    assert state() == "idle"
    assert api.get("/sessions/s1").body["distilled_seq"] == 2


def test_quarantined_messages_are_named(api: Api) -> None:
    api.say("s1", user("u1"), result("r1"))
    cursor = Cursor.objects.get()
    for seq, state in ((2, "held"), (1, "held"), (3, "dismissed")):
        Quarantine.objects.create(
            cursor=cursor, space=cursor.space, agent=cursor.agent, uid=f"u{seq}", seq=seq, state=state
        )
    assert api.get("/distillation").body["items"][0]["quarantined"] == [1, 2]


def test_cursors_come_in_pages(api: Api) -> None:
    for n in range(5):
        api.say(f"s{n}", user("u"), result("r"))
    first = api.get("/distillation?limit=2").body
    rest = api.get(f"/distillation?limit=500&after={first['next']}").body
    assert [row["session"] for row in first["items"] + rest["items"]] == ["s0", "s1", "s2", "s3", "s4"]
    assert api.get("/distillation?limit=501").status == 422


def test_cursors_are_seen_by_those_who_see_the_session(api: Api, other: Api, whole_space: Api) -> None:
    api.say("s1", user("u1"), result("r1"))
    other.say("s2", user("u1"), result("r1"))
    assert [row["session"] for row in other.get("/distillation").body["items"]] == ["s2"]
    assert [row["agent"] for row in whole_space.get("/distillation").body["items"]] == ["ada", "grace"]
    assert [row["agent"] for row in whole_space.get("/distillation?owner=ada").body["items"]] == ["ada"]
    assert whole_space.get("/distillation?owner=nobody").status == 404


def test_a_pass_may_be_asked_for_at_any_time(api: Api) -> None:
    api.put("/sessions/s1")
    answer = api.post("/sessions/s1/distill")
    assert answer.status == 202
    assert set(answer.body) == FIELDS
    assert Cursor.objects.get().requested_at is not None
    assert api.post("/sessions/s1/distill").status == 202
    assert api.post("/sessions/none/distill").status == 404


def test_d7_a_pass_is_not_asked_for_while_backing_off_unless_a_space_token_forces_it(
    api: Api, whole_space: Api
) -> None:
    api.say("s1", user("u1"), result("r1"))
    until = timezone.now() + timedelta(hours=1)
    Cursor.objects.update(next_attempt_at=until, failures=1)
    answer = api.post("/sessions/s1/distill")
    assert (answer.status, answer.kind) == (409, "backing-off")
    assert answer.body["next_attempt_at"].endswith("Z")
    assert whole_space.post("/sessions/s1/distill").status == 409
    assert api.post("/sessions/s1/distill?force=true").status == 403
    assert api.post("/sessions/none/distill?force=true").status == 403
    assert Cursor.objects.get().requested_at is None
    assert whole_space.post("/sessions/s1/distill?force=true&owner=ada").status == 202
    assert Cursor.objects.get().requested_at is not None
    assert Cursor.objects.get().next_attempt_at is None
