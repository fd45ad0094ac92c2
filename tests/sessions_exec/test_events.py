"""The log of a session (S10)."""

from __future__ import annotations

import pytest
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext

from agentmemory.models import Session
from agentmemory.services import removals, sessions, transcripts
from sessions_exec.models import SessionEvent
from sessions_exec.services import events, executions, inbox
from tests.factories import AgentFactory, SessionFactory
from tests.support.running import acquire, log, say

pytestmark = pytest.mark.django_db


@pytest.fixture
def session() -> Session:
    return SessionFactory.create()


def test_s10_the_log_tells_a_session_from_its_beginning() -> None:
    session, _ = sessions.adopt(agent=AgentFactory.create(), name="s")
    inbox.admit(session=session, uid="i1", prompt="Do it.")
    held = acquire(session)
    inbox.promote(session=session, guard=held, boundary="step")
    executions.renew(session=session, held=held, phase="unknown", assistant_uid="a1")
    say(session, "a1", type="assistant", content="Done.", guard=held)
    executions.renew(session=session, held=held, phase="safe")
    say(session, "r1", type="result", content="", guard=held)
    executions.release(session=session, held=held)
    sessions.adopt(agent=session.agent, name="s")

    assert log(session) == [
        "session.created",
        "input.admitted",
        "execution.acquired",
        "message.appended",
        "input.promoted",
        "execution.phase",
        "message.appended",
        "execution.phase",
        "message.appended",
        "turn.ended",
        "execution.released",
    ]


def test_s10_what_changes_in_place_is_told(session: Session) -> None:
    for uid in ("u1", "u2", "u3"):
        say(session, uid)
    transcripts.set_delivery(session=session, uid="u1", delivery="enqueued")
    removals.retract(session=session, uids=["u2", "later"])
    newer = transcripts.NewMessage(uid="u4", type="user", content="Better.", supersedes=["u1"])
    transcripts.append(session=session, messages=[newer])
    removals.rewind(session=session, after_uid="u2")
    removals.remove(session=session, uids=["u1", "gone"], reason="said by mistake")
    changed = SessionEvent.objects.filter(session=session, type="message.changed").order_by("seq")

    assert list(changed.values_list("data", flat=True)) == [
        {"uid": "u1", "seq": 1, "delivery": "enqueued"},
        {"uid": "u2", "seq": 2, "retracted": True},
        {"uid": "u1", "seq": 1, "superseded_by": "u4"},
        {"removed_after": 2, "after_uid": "u2", "removed": 2},
        {"uid": "u1", "seq": 1, "removed": True},
    ]


def test_s10_an_end_of_a_turn_that_is_known_only_later_is_told(session: Session) -> None:
    say(session, "u1")
    ends = transcripts.NewMessage(uid="u1", type="user", content="Hello.", ends_turn=True)
    transcripts.append(session=session, messages=[ends])
    say(session, "u2")
    transcripts.finish(session_id=session.pk)
    ended = SessionEvent.objects.filter(session=session, type="turn.ended").order_by("seq")
    assert [data["seq"] for data in ended.values_list("data", flat=True)] == [1, 2]


def test_s10_the_page_carries_the_whole_value(session: Session) -> None:
    inbox.admit(session=session, uid="i1", prompt="Do it.")
    say(session, "u1", content=[{"type": "text", "text": "Hi."}])
    admitted, appended = events.page(session=session, after=0, limit=10)

    assert admitted.data["prompt"] == "Do it."
    assert appended.data["content"] == [{"type": "text", "text": "Hi."}]
    assert events.page(session=session, after=1, limit=10) == [appended]
    assert events.page(session=session, after=2, limit=10) == []


def test_a_page_of_large_content_is_shorter(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(5):
        say(session, f"u{n}", content="".join(map(str, range(2_000))))
    monkeypatch.setattr(events, "MOST_CONTENT", 3_000)
    assert len(events.page(session=session, after=0, limit=10)) < 5
    seen, after = 0, 0
    while found := events.page(session=session, after=after, limit=10):
        seen, after = seen + len(found), found[-1].seq
    assert seen == 5


def test_s10_events_are_neither_changed_nor_deleted_alone(session: Session) -> None:
    say(session, "u1")
    for act in (
        lambda: SessionEvent.objects.filter(session=session).update(type="turn.ended"),
        lambda: SessionEvent.objects.filter(session=session).delete(),
        lambda: SessionEvent.objects.get(session=session).delete(),
    ):
        with pytest.raises(DatabaseError), transaction.atomic():
            act()
    assert log(session) == ["message.appended"]


def test_s10_events_go_with_their_session_and_with_a_purge(session: Session) -> None:
    other = SessionFactory.create()
    say(session, "u1")
    say(other, "u1")
    acquire(other, seconds=60)
    sessions.delete(session=session)
    assert not SessionEvent.objects.filter(session_id=session.pk).exists()
    with pytest.raises(DatabaseError), transaction.atomic():
        SessionEvent.objects.all().delete()
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('agentmemory.purge', 'on', true)")
        SessionEvent.objects.all().delete()


def test_appending_many_costs_as_many_queries_as_appending_few(session: Session) -> None:
    counts = []
    for batch, size in (("warm", 1), ("few", 2), ("many", 200)):
        messages = [
            transcripts.NewMessage(uid=f"{batch}-{n}", type="user" if n else "result", content="x") for n in range(size)
        ]
        with CaptureQueriesContext(
            connection,
        ) as queries:
            transcripts.append(session=session, messages=messages)
        counts.append(len(queries))
    assert counts[1] == counts[2]
