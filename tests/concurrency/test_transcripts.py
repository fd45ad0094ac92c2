"""Races for transcripts: each with its guard, and once without it."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pytest
from django.db import IntegrityError

from agentmemory.errors import NotFound, UidConflict
from agentmemory.models import Agent, Memory, MemorySource, Message, Session
from agentmemory.services import distilled, removals, sessions, transcripts
from agentmemory.services.transcripts import NewMessage
from distillation.models import Cursor
from tests.factories import AgentFactory
from tests.support import races

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def ada(db: None) -> Agent:
    return AgentFactory.create(handle="ada")


@pytest.fixture
def session(ada: Agent) -> Session:
    return sessions.adopt(agent=ada, name="s1")[0]


def user(uid: str, content: Any = "A question.", **values: Any) -> NewMessage:
    return NewMessage(uid=uid, type="user", content=content, **values)


def result(uid: str) -> NewMessage:
    return NewMessage(uid=uid, type="result", content="done")


def say(session: Session, *messages: NewMessage) -> transcripts.Appended:
    return transcripts.append(session=session, messages=messages)


def write_in_eight(session: Session) -> list[int]:
    """Eight writers of eleven calls each; what the database holds then, by number."""

    def write(writer: int) -> None:
        for call in range(11):
            say(session, *[user(f"{writer}-{call}-{n}") for n in range(call % 3 + 1)])

    races.together(*[lambda w=w: write(w) for w in range(8)])
    return list(Message.objects.filter(session=session).order_by("seq").values_list("seq", flat=True))


def test_r1_eight_writers_at_once_leave_no_gap_and_double_nothing(session: Session) -> None:
    found = write_in_eight(session)
    assert found == list(range(1, len(found) + 1))
    assert len(found) == 8 * sum(call % 3 + 1 for call in range(11))
    assert Session.objects.get().last_seq == len(found)


def test_r1_without_the_lock_of_the_session_they_take_the_same_numbers(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    meeting = threading.Barrier(2)

    def look_only(pk: int) -> Session:
        found = Session.objects.get(pk=pk)
        meeting.wait(timeout=30)
        return found

    monkeypatch.setattr(transcripts, "lock", look_only)

    def write(uid: str) -> bool:
        with suppress(IntegrityError):
            say(session, user(uid))
            return True
        return False

    assert sorted(races.together(lambda: write("a"), lambda: write("b"))) == [False, True]


def test_r1_who_reads_after_a_number_misses_nothing(session: Session) -> None:
    """Numbers become visible in their order: a reader that goes on from the last one it saw sees all of them."""
    seen: list[int] = []
    ends = threading.Event()

    def write(writer: int) -> None:
        for call in range(25):
            say(session, user(f"{writer}-{call}"))

    def read() -> None:
        while True:
            last_look = ends.is_set()
            after = seen[-1] if seen else 0
            seen.extend(
                Message.objects.filter(session=session, seq__gt=after).order_by("seq").values_list("seq", flat=True)
            )
            if last_look:
                return

    reader = races.Actor(read)
    races.together(*[lambda w=w: write(w) for w in range(4)])
    ends.set()
    races.outcome(reader)
    assert seen == list(range(1, 101))


def test_r2_the_same_messages_from_two_at_once_are_there_once(session: Session) -> None:
    messages = [user(f"m{n}", f"Number {n}.") for n in range(20)]
    done = races.together(*[lambda: say(session, *messages)] * 4)
    assert sorted(each.accepted for each in done) == [0, 0, 0, 20]
    assert Message.objects.count() == 20


def test_r2_of_two_contents_of_one_uid_at_once_one_stands(session: Session) -> None:
    def write(content: str) -> bool:
        with suppress(UidConflict):
            say(session, user("other" + content), user("a", content))
            return True
        return False

    assert sorted(races.together(lambda: write("One."), lambda: write("Two."))) == [False, True]
    assert Message.objects.count() == 2


def test_r5_a_retraction_and_its_target_at_once_meet_in_any_order(session: Session) -> None:
    for n in range(8):
        races.together(
            lambda uid=f"m{n}": say(session, user(uid)),  # type: ignore[misc]
            lambda uid=f"m{n}": removals.retract(session=session, uids=[uid]),  # type: ignore[misc]
        )
    assert Message.objects.filter(retracted_at__isnull=False).count() == 8


def test_r7_one_name_adopted_by_many_at_once_is_one_session_with_one_cursor(ada: Agent) -> None:
    made = races.together(*[lambda: sessions.adopt(agent=ada, name="new")] * 6)
    assert sorted(created for _, created in made) == [False] * 5 + [True]
    assert Session.objects.get(name="new").cursor.position == 0


def test_r7_writing_and_deleting_a_session_at_once_leaves_all_or_nothing(ada: Agent) -> None:
    for n in range(5):
        session, _ = sessions.adopt(agent=ada, name=f"s{n}")
        say(session, user("a"), result("b"))

        def write(each: Session = session) -> None:
            with suppress(NotFound):
                say(each, user("c"), result("d"))

        def remove(each: Session = session) -> None:
            sessions.delete(session=each)

        races.together(write, remove)
        assert not Session.objects.filter(pk=session.pk).exists()
        assert not Message.objects.filter(session_id=session.pk).exists()
        assert not Cursor.objects.filter(session_id=session.pk).exists()


def test_r4_two_deliveries_at_once_leave_a_watermark_that_fits(session: Session) -> None:
    say(session, user("a", delivery="enqueued"), user("b", delivery="enqueued"), result("r"))
    races.together(
        lambda: transcripts.set_delivery(session=session, uid="a", delivery="consumed"),
        lambda: transcripts.set_delivery(session=session, uid="b", delivery="failed"),
    )
    assert Cursor.objects.get().watermark == 3


def _distil(session: Session, key: str) -> Memory:
    message = Message.objects.filter(session=session).order_by("seq")[0]
    finding = distilled.Finding(
        key=key,
        content=f"{key} of {session.name}.",
        tags=[],
        context="",
        sources=[distilled.Source(message=message, quote="", verified=False)],
    )
    return distilled.write(session=session, finding=finding, pass_id=1).memory


def test_d23_a_pass_and_a_retraction_of_the_same_memories_wait_for_each_other_and_not_for_ever(ada: Agent) -> None:
    """The pass holds `a` and wants `b`; the retraction touches both, and would lock `b` first if it went by ids."""
    one, other = (sessions.adopt(agent=ada, name=name)[0] for name in ("s1", "s2"))
    for session in (one, other):
        say(session, user("m"), result("r"))
    made = {key: _distil(one, key) for key in ("a", "b")}
    while made["b"].pk > made["a"].pk:
        made["b"].delete()
        made["b"] = _distil(one, "b")
    running = races.Paused(lambda: _distil(other, "a"), lambda: _distil(other, "b"))
    retracting = races.Actor(lambda: removals.retract(session=one, uids=["m"]))
    assert retracting.waits()
    running.go_on()
    races.outcome(running)
    races.outcome(retracting)
    assert set(Memory.objects.values_list("content", flat=True)) == {"a of s2.", "b of s2."}
    assert MemorySource.objects.filter(gone_at__isnull=True).count() == 2
