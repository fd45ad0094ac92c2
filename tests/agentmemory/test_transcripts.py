"""Transcripts on the real database: numbered once, kept as they came, taken back by name (R1 to R7)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings as project
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pytest_django import Settings

from agentmemory.callers import Caller
from agentmemory.errors import Invalid, NotFound, UidConflict
from agentmemory.models import Agent, Memory, MemorySource, Message, MessageEdge, Session
from agentmemory.services import distilled, removals, sessions, transcripts
from agentmemory.services.transcripts import Appended, NewMessage
from distillation.models import Cursor, DistillationPass
from tests.factories import AgentFactory

pytestmark = pytest.mark.django_db

SECRET = "sk-ant-api03-" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7" * 3


@pytest.fixture
def ada(db: None) -> Agent:
    return AgentFactory.create(handle="ada")


@pytest.fixture
def session(ada: Agent) -> Session:
    return sessions.adopt(agent=ada, name="s1")[0]


def user(uid: str, content: Any = "A question.", **values: Any) -> NewMessage:
    return NewMessage(uid=uid, type="user", content=content, **values)


def assistant(uid: str, content: Any = "An answer.", **values: Any) -> NewMessage:
    return NewMessage(uid=uid, type="assistant", content=content, **values)


def result(uid: str) -> NewMessage:
    return NewMessage(uid=uid, type="result", content="done")


def say(session: Session, *messages: NewMessage, **values: Any) -> Appended:
    return transcripts.append(session=session, messages=messages, **values)


def numbers(session: Session) -> list[tuple[int, str]]:
    return list(Message.objects.filter(session=session).order_by("seq").values_list("seq", "uid"))


def one(session: Session, uid: str) -> Message:
    return Message.objects.get(session=session, uid=uid)


def fresh(session: Session) -> Session:
    return Session.objects.get(pk=session.pk)


def remember(session: Session, uid: str) -> Memory:
    finding = distilled.Finding(
        key=f"from {uid}",
        content="It.",
        tags=[],
        context="",
        sources=[distilled.Source(message=one(session, uid), quote="", verified=False)],
    )
    with transaction.atomic():
        return distilled.write(session=session, finding=finding, pass_id=1).memory


# R1


def test_r1_numbers_begin_at_one_and_have_no_gaps(session: Session) -> None:
    say(session, user("a"), assistant("b"))
    done = say(session, user("c"), result("d"))
    assert numbers(session) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert (done.accepted, done.duplicates, done.last_seq, done.terminal_seq) == (2, 0, 4, 4)


def test_r1_a_number_is_never_used_again_after_a_rewind(session: Session) -> None:
    say(session, user("a"), assistant("b"), user("c"))
    assert removals.rewind(session=session, after_uid="a") == 2
    assert say(session, user("d")).last_seq == 4
    assert numbers(session) == [(1, "a"), (4, "d")]


def test_r1_a_number_is_never_used_again_after_messages_were_deleted(session: Session) -> None:
    say(session, user("a"), assistant("b"))
    Message.objects.filter(session=session).delete()
    say(session, user("c"))
    assert numbers(session) == [(3, "c")]


def test_r1_what_is_refused_takes_no_number(session: Session) -> None:
    say(session, user("a"))
    for messages in ([user("b"), user("a", "Other.")], [user("b"), NewMessage(uid="c", type="tool", content="x")]):
        with pytest.raises((UidConflict, Invalid)):
            say(session, *messages)
    say(session, user("b"))
    assert numbers(session) == [(1, "a"), (2, "b")]


def test_r1_the_database_refuses_a_number_twice(session: Session) -> None:
    say(session, user("a"), user("b"))
    with pytest.raises(IntegrityError, match="message_seq_unique"), transaction.atomic():
        Message.objects.filter(session=session, uid="b").update(seq=1)


# R2


def test_r2_a_repeated_message_is_a_duplicate_and_changes_nothing(session: Session) -> None:
    say(session, user("a", [{"type": "text", "text": "Hi", "n": 1}]))
    before = Message.objects.values().get()
    done = say(session, user("a", [{"n": 1, "text": "Hi", "type": "text"}]), user("b"))
    assert (done.accepted, done.duplicates, done.last_seq) == (1, 1, 2)
    assert Message.objects.values().get(uid="a") == before


def test_r2_a_message_twice_in_one_call_is_one_message(session: Session) -> None:
    done = say(session, user("a"), user("a"), user("b"))
    assert (done.accepted, done.duplicates) == (2, 1)
    assert numbers(session) == [(1, "a"), (2, "b")]


def test_r2_the_same_uid_with_other_content_is_a_conflict_and_nothing_is_written(session: Session) -> None:
    say(session, user("a"))
    for message in (user("a", "Other."), assistant("a")):
        with pytest.raises(UidConflict, match="'a'"):
            say(session, user("new"), message, user("newer"))
    with pytest.raises(UidConflict):
        say(session, user("new", "One."), user("new", "Two."))
    assert numbers(session) == [(1, "a")]
    assert fresh(session).last_seq == 1


def test_r2_the_same_words_of_another_speaker_are_other_content(session: Session) -> None:
    say(session, user("a", "Yes."))
    with pytest.raises(UidConflict):
        say(session, assistant("a", "Yes."))


def test_r2_one_uid_may_stand_in_two_sessions(session: Session, ada: Agent) -> None:
    other, _ = sessions.adopt(agent=ada, name="s2")
    say(session, user("a", "Here."))
    say(other, user("a", "There."))
    assert Message.objects.filter(uid="a").count() == 2


def test_r2_sameness_is_judged_by_what_was_received_and_not_by_what_was_kept(session: Session) -> None:
    other = SECRET.replace("aB3", "xY9")
    say(session, user("a", f"The key is {SECRET}."))
    assert SECRET not in json.dumps(one(session, "a").content)
    assert say(session, user("a", f"The key is {SECRET}.")).duplicates == 1
    with pytest.raises(UidConflict) as conflict:
        say(session, user("a", f"The key is {other}."))
    assert other not in str(conflict.value)


def test_r2_a_message_stays_known_after_the_secret_key_was_changed(session: Session, settings: Settings) -> None:
    say(session, user("a"))
    settings.SECRET_KEY_FALLBACKS = [project.SECRET_KEY]
    settings.SECRET_KEY = "another" * 10
    assert say(session, user("a"), user("b")).duplicates == 1
    settings.SECRET_KEY_FALLBACKS = []
    assert say(session, user("b")).duplicates == 1


# R3


def test_r3_content_is_kept_as_it_came(session: Session) -> None:
    content = [
        {"type": "text", "text": "  spaces \n and ends  "},
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "tool_use", "id": "t1", "name": "run", "input": {"a": [1, 2.5, None, True, {"b": ""}]}},
        {"type": "unheard_of", "x": {"y": "z"}},
    ]
    say(session, assistant("a", content))
    assert one(session, "a").content == content


@pytest.mark.parametrize(
    ("content", "kept", "counts"),
    [
        ("a\0b", "a\ufffdb", {"nul": 1}),
        ("a\ud800b\udfff", "a\ufffdb\ufffd", {"surrogate": 2}),
        ([{"type": "tool_result", "content": "\0\0\ud83d"}], [{"type": "tool_result", "content": "\ufffd" * 3}], None),
        (
            [{"type": "tool_use", "input": {"k\0": "v\udc00"}}],
            [{"type": "tool_use", "input": {"k\ufffd": "v\ufffd"}}],
            None,
        ),
    ],
)
def test_r3_what_no_database_can_hold_is_replaced_and_counted(
    session: Session, content: Any, kept: Any, counts: dict[str, int] | None
) -> None:
    done = say(session, user("a", content))
    row = one(session, "a")
    assert row.content == kept
    assert sum(done.redacted.values()) >= 1
    assert dict(done.redacted) == row.redactions
    if counts is not None:
        assert sum(row.redactions.values()) == sum(counts.values())


def test_r3_secrets_are_replaced_everywhere_before_the_store_and_counted(session: Session) -> None:
    content = [
        {"type": "text", "text": f"key={SECRET}"},
        {"type": "tool_use", "id": "t", "name": "sh", "input": {"command": f"export K={SECRET}"}},
        {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": SECRET}]},
    ]
    done = say(session, user("a", content))
    with connection.cursor() as cursor:
        cursor.execute("SELECT m::text FROM agentmemory_message m")
        assert SECRET not in cursor.fetchone()[0]
    assert sum(done.redacted.values()) == 3


def test_r3_a_title_and_metadata_are_cleaned_like_messages(ada: Agent) -> None:
    session, _ = sessions.adopt(agent=ada, name="s", title=f"{SECRET} \0", metadata={"k\0": f"{SECRET} \ud800"})
    stored = fresh(session)
    assert SECRET not in json.dumps([stored.title, stored.metadata])
    assert list(stored.metadata) == ["k\ufffd"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Plain.", "Plain."),
        ([{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}], "One.\n\nTwo."),
        (["One.", {"type": "text", "text": "Two."}], "One.\n\nTwo."),
        ([{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Said."}], "Said."),
        ([{"type": "tool_use", "input": {"text": "no"}}, {"type": "tool_result", "content": "no"}], ""),
        ([{"type": "text"}, {"type": "text", "text": 3}, {"type": "text", "text": "  "}, None, 7], ""),
        ([], ""),
        ("", ""),
    ],
)
def test_r3_visible_text_is_what_was_said(session: Session, content: Any, text: str) -> None:
    say(session, assistant("a", content))
    assert one(session, "a").text == text


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(-1e15, 1e15, allow_subnormal=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)
@given(content=st.text() | st.lists(json_values, max_size=5))
@example(content="\ud800\0" * 5)
@example(content=[{"type": "text", "text": "\udfff"}])
@example(content=[{"\0": {"\0": ["\0"]}}])
@example(content=[1e15, -0.0, 0.1, 2**53])
def test_r3_whatever_comes_is_kept_and_known_again(session: Session, content: Any) -> None:
    say(session, user("a", content))
    row = one(session, "a")
    assert "\0" not in row.text
    row.text.encode()
    json.dumps(row.content).encode()
    if not row.redactions and _stands(content):
        assert row.content == content
    assert say(session, user("a", content)).duplicates == 1
    removals.rewind(session=session, after_uid="a")
    Message.objects.filter(session=session).delete()


def _stands(content: Any) -> bool:
    return bool(json.loads(json.dumps(content)) == content)


@pytest.mark.parametrize("bad", ["", "   ", "u" * 201, "a\0b", "a\ud800"])
def test_a_uid_that_cannot_be_kept_is_refused(session: Session, bad: str) -> None:
    with pytest.raises(Invalid) as refusal:
        say(session, user("fine"), user(bad))
    assert refusal.value.field == "uid"
    assert numbers(session) == []


@pytest.mark.parametrize("bad", ["", "u" * 201, "a\0b", "a\ud800"])
def test_a_uid_that_cannot_be_kept_is_refused_as_a_target_too(session: Session, bad: str) -> None:
    say(session, user("a"))
    calls: list[Callable[[], Any]] = [
        lambda: say(session, user("b", supersedes=[bad])),
        lambda: removals.retract(session=session, uids=["a", bad]),
    ]
    for call in calls:
        with pytest.raises(Invalid), transaction.atomic():
            call()
    absent: list[Callable[[], Any]] = [
        lambda: removals.rewind(session=session, after_uid=bad),
        lambda: transcripts.set_delivery(session=session, uid=bad, delivery="failed"),
    ]
    for call in absent:
        with pytest.raises(NotFound), transaction.atomic():
            call()
    assert one(session, "a").retracted_at is None
    assert numbers(session) == [(1, "a")]


def test_r3_a_reason_cannot_wedge_what_it_is_given_for(session: Session) -> None:
    say(session, user("a"))
    removals.retract(session=session, uids=["a", "later"], reason=f"\0\ud800 {SECRET} " + "r" * 600)
    reasons = [one(session, "a").retraction_reason, *MessageEdge.objects.values_list("reason", flat=True)]
    assert all(0 < len(reason) <= 500 and SECRET not in reason and "\0" not in reason for reason in reasons)


# R4


@pytest.mark.parametrize("delivery", ["consumed", "enqueued", "deferred", "failed"])
def test_r4_a_user_message_has_a_delivery_that_changes_in_place(session: Session, delivery: str) -> None:
    say(session, user("a", delivery="enqueued"), assistant("b"), result("c"))
    transcripts.set_delivery(session=session, uid="a", delivery=delivery)
    row = one(session, "a")
    assert (row.delivery, row.seq) == (delivery, 1)
    assert say(session, user("a")).duplicates == 1


def test_r4_the_watermark_waits_for_a_message_that_the_model_has_not_seen(session: Session) -> None:
    say(session, user("a"), result("b"), user("c", delivery="deferred"), result("d"))
    assert Cursor.objects.get().watermark == 2
    transcripts.set_delivery(session=session, uid="c", delivery="consumed")
    assert Cursor.objects.get().watermark == 4


def test_r4_the_watermark_waits_no_longer_for_a_message_that_was_replaced(session: Session) -> None:
    say(session, user("a", delivery="enqueued"), result("b"))
    assert Cursor.objects.get().watermark == 0
    say(session, user("c", supersedes=["a"]))
    assert Cursor.objects.get().watermark == 2


@pytest.mark.parametrize(
    ("uid", "delivery", "error"), [("b", "failed", Invalid), ("a", "lost", Invalid), ("nobody", "failed", NotFound)]
)
def test_r4_only_user_messages_are_delivered(session: Session, uid: str, delivery: str, error: type[Exception]) -> None:
    say(session, user("a"), assistant("b"))
    with pytest.raises(error):
        transcripts.set_delivery(session=session, uid=uid, delivery=delivery)


# R5


def test_r5_a_message_is_superseded_before_and_after_it_arrives(session: Session) -> None:
    say(session, user("a"), user("b", supersedes=["a", "later"]))
    assert one(session, "a").superseded_by == "b"
    say(session, user("later"))
    assert one(session, "later").superseded_by == "b"
    assert list(Message.objects.filter(session=session).standing().values_list("uid", flat=True)) == ["b"]


def test_r5_a_message_is_superseded_within_one_call_in_both_orders(session: Session) -> None:
    say(session, user("a"), user("b", supersedes=["a"]), user("c", supersedes=["d"]), user("d"))
    assert [one(session, uid).superseded_by for uid in "abcd"] == ["b", "", "", "c"]


def test_r5_a_message_is_retracted_before_and_after_it_arrives(session: Session) -> None:
    say(session, user("a"))
    assert removals.retract(session=session, uids=["a", "later"], reason="wrong") == 1
    say(session, user("later"))
    assert all(one(session, uid).retracted_at for uid in ("a", "later"))
    assert one(session, "later").retraction_reason == "wrong"
    assert removals.retract(session=session, uids=["a", "later"], reason="again") == 0
    assert one(session, "a").retraction_reason == "wrong"


def test_r5_what_is_taken_back_reaches_its_memories_once(session: Session) -> None:
    say(session, user("a"), user("b"), result("c"))
    memory = remember(session, "a")
    other = remember(session, "b")
    removals.retract(session=session, uids=["a"], reason="wrong")
    say(session, user("d", supersedes=["b"]))
    for row in (memory, other):
        row.refresh_from_db()
        assert row.withdrawn_at is not None
    assert set(MemorySource.objects.exclude(gone_at=None).values_list("uid", flat=True)) == {"a", "b"}


def test_r5_a_message_does_not_supersede_itself(session: Session) -> None:
    say(session, user("a", supersedes=["a"]))
    assert one(session, "a").superseded_by == ""


def test_r5_a_message_stands_again_when_what_replaced_it_was_rewound(session: Session) -> None:
    say(session, user("a"), user("b"), user("c", supersedes=["a", "later"]))
    removals.rewind(session=session, after_uid="b")
    assert one(session, "a").superseded_by == ""
    say(session, user("later"))
    assert one(session, "later").superseded_by == ""
    assert Message.objects.filter(session=session).standing().count() == 3


def test_r5_a_message_names_the_first_that_replaced_it(session: Session) -> None:
    say(session, user("a"), user("b", supersedes=["a"]))
    say(session, user("c", supersedes=["a"]))
    assert one(session, "a").superseded_by == "b"


def test_r5_a_message_that_two_replaced_stays_replaced_while_one_of_them_stands(session: Session) -> None:
    say(session, user("a"), user("b", supersedes=["a"]), user("c", supersedes=["a"]))
    removals.rewind(session=session, after_uid="b")
    assert one(session, "a").superseded_by == "b"


def test_r5_a_retraction_outlives_a_rewind(session: Session) -> None:
    """It was said about the message, by its name: sent again, it is taken back still."""
    say(session, user("a"), user("b"))
    removals.retract(session=session, uids=["b"], reason="a secret")
    removals.rewind(session=session, after_uid="a")
    say(session, user("b"))
    assert one(session, "b").retracted_at is not None


def test_r5_a_superseded_message_names_another_ones_uid_in_no_other_session(session: Session, ada: Agent) -> None:
    other, _ = sessions.adopt(agent=ada, name="s2")
    say(other, user("a"))
    say(session, user("b", supersedes=["a"]))
    removals.retract(session=session, uids=["a"])
    row = one(other, "a")
    assert (row.superseded_by, row.retracted_at) == ("", None)


# R6


def test_r6_a_turn_ends_with_a_result(session: Session) -> None:
    say(session, user("a"), assistant("b"))
    assert fresh(session).terminal_seq == 0
    assert say(session, result("c"), user("d")).terminal_seq == 3


def test_r6_an_importer_says_where_a_turn_ends_also_later(session: Session) -> None:
    say(session, user("a"), assistant("b"))
    done = say(session, user("a"), assistant("b", ends_turn=True), user("c"))
    assert (done.duplicates, done.terminal_seq) == (2, 2)
    assert one(session, "b").ends_turn
    assert say(session, assistant("b")).terminal_seq == 2
    assert one(session, "b").ends_turn


def _age(session: Session, seconds: float) -> None:
    Session.objects.filter(pk=session.pk).update(quiet_since=timezone.now() - timedelta(seconds=seconds))


def test_r6_a_quiet_tail_is_finished_to_its_last_message(session: Session, settings: Settings) -> None:
    settings.AGENTMEMORY_IDLE_AFTER = 60.0
    say(session, user("a"), result("b"), user("c"))
    assert transcripts.quiet_sessions(now=timezone.now()) == []
    _age(session, 61)
    assert transcripts.quiet_sessions(now=timezone.now()) == [session.pk]
    transcripts.finish(session_id=session.pk)
    assert fresh(session).terminal_seq == 3
    assert Cursor.objects.get().watermark == 3
    assert transcripts.quiet_sessions(now=timezone.now()) == []


def test_r6_what_comes_after_the_end_of_a_tail_waits_for_its_own_end(session: Session) -> None:
    say(session, user("a"))
    transcripts.finish(session_id=session.pk)
    say(session, user("b"))
    assert (fresh(session).terminal_seq, fresh(session).last_seq) == (1, 2)
    assert Cursor.objects.get().watermark == 1


def test_r6_a_file_is_as_quiet_as_its_last_record(session: Session, settings: Settings) -> None:
    settings.AGENTMEMORY_IDLE_AFTER = 60.0
    long_ago = timezone.now() - timedelta(days=9)
    say(session, user("a"), said_at=long_ago)
    assert transcripts.quiet_sessions(now=timezone.now()) == [session.pk]
    say(session, user("b"))
    assert transcripts.quiet_sessions(now=timezone.now()) == []
    say(session, user("c"), said_at=long_ago)
    assert transcripts.quiet_sessions(now=timezone.now()) == []


def test_r6_a_complete_session_is_finished_with_all_that_still_comes(session: Session, ada: Agent) -> None:
    say(session, user("a"), user("b"))
    sessions.adopt(agent=ada, name="s1", complete=True)
    assert fresh(session).terminal_seq == 2
    assert say(session, user("c")).last_seq == 3
    assert fresh(session).terminal_seq == 3
    sessions.adopt(agent=ada, name="s1", complete=False)
    say(session, user("d"))
    assert (fresh(session).completed_at, fresh(session).terminal_seq) == (None, 3)


def test_r6_a_complete_session_stays_finished_after_a_rewind(session: Session, ada: Agent) -> None:
    say(session, user("a"), user("b"), user("c"))
    sessions.adopt(agent=ada, name="s1", complete=True)
    removals.rewind(session=session, after_uid="b")
    assert fresh(session).terminal_seq == 2
    assert Cursor.objects.get().watermark == 2


def test_r6_after_a_rewind_a_turn_ends_where_one_still_ends(session: Session) -> None:
    say(session, user("a"), result("b"), user("c"), result("d"), user("e"))
    removals.rewind(session=session, after_uid="c")
    assert fresh(session).terminal_seq == 2
    assert Cursor.objects.get().watermark == 2


# R7


def test_r7_a_deleted_session_leaves_nothing_and_its_name_begins_afresh(session: Session, ada: Agent) -> None:
    say(session, user("a"), user("b", supersedes=["a"]), result("c"))
    removals.retract(session=session, uids=["a", "later"])
    Cursor.objects.update(position=3)
    sessions.delete(session=session)
    assert not Message.objects.exists()
    assert not MessageEdge.objects.exists()
    assert not Cursor.objects.exists()
    again, created = sessions.adopt(agent=ada, name="s1")
    assert created
    say(again, user("later"), user("a"), result("r"))
    assert numbers(again) == [(1, "later"), (2, "a"), (3, "r")]
    assert [one(again, uid).retracted_at for uid in ("a", "later")] == [None, None]
    cursor = Cursor.objects.get()
    assert (cursor.position, cursor.watermark) == (0, 3)


def test_r7_memories_go_or_stay_with_their_session_as_asked(session: Session, ada: Agent) -> None:
    other, _ = sessions.adopt(agent=ada, name="s2")
    kept = []
    for each, keep in ((session, False), (other, True)):
        say(each, user(f"of {each.name}"), result("r"))
        memory = remember(each, f"of {each.name}")
        sessions.delete(session=each, keep_memories=keep)
        memory.refresh_from_db()
        kept.append(memory.withdrawn_at is None)
    assert kept == [False, True]
    trail = MemorySource.objects.get(session_name="s2")
    assert (trail.session, trail.message, trail.uid, trail.seq) == (None, None, "of s2", 1)


def test_r7_a_pass_outlives_its_session(session: Session) -> None:
    say(session, user("a"), result("b"))
    cursor = Cursor.objects.get()
    row = DistillationPass.objects.create(
        space=session.space,
        agent=session.agent,
        cursor=cursor,
        session=session,
        session_name="s1",
        epoch=1,
        start=0,
        end=2,
    )
    sessions.delete(session=session)
    row.refresh_from_db()
    assert (row.session, row.cursor, row.session_name) == (None, None, "s1")


def test_r7_a_deleted_session_is_no_longer_there_for_those_who_hold_it(session: Session) -> None:
    sessions.delete(session=session)
    calls: list[Callable[[], Any]] = [
        lambda: say(session, user("a")),
        lambda: removals.retract(session=session, uids=["a"]),
        lambda: removals.rewind(session=session, after_uid="a"),
        lambda: transcripts.set_delivery(session=session, uid="a", delivery="failed"),
        lambda: transcripts.finish(session_id=session.pk),
    ]
    for call in calls:
        with pytest.raises(NotFound):
            call()


# Guards, cost, names


class Refused(Exception):
    pass


def _refuse(session: Session) -> None:
    raise Refused


def test_a_guard_that_raises_lets_nothing_be_written(session: Session) -> None:
    say(session, user("a"), user("b", delivery="enqueued"))
    before = (list(Message.objects.values()), Session.objects.values().get(), Cursor.objects.values().get())
    calls: list[Callable[[], Any]] = [
        lambda: say(session, user("c"), result("d"), guard=_refuse),
        lambda: transcripts.set_delivery(session=session, uid="b", delivery="failed", guard=_refuse),
        lambda: removals.rewind(session=session, after_uid="a", guard=_refuse),
        lambda: sessions.delete(session=session, guard=_refuse),
    ]
    for call in calls:
        with pytest.raises(Refused):
            call()
    assert (list(Message.objects.values()), Session.objects.values().get(), Cursor.objects.values().get()) == before


def _cost(agent: Agent, count: int) -> int:
    """The queries of an append of so many messages, of which every tenth replaces the one before it."""
    session, _ = sessions.adopt(agent=agent, name=f"of-{count}")
    say(session, user("m-1"))
    messages = [user(f"m{n}", f"Number {n}.", supersedes=[f"m{n - 1}"] if n % 10 == 0 else ()) for n in range(count)]
    with CaptureQueriesContext(connection) as queries:
        say(session, *messages, result("r"))
    return len(queries)


def test_the_number_of_queries_does_not_depend_on_the_number_of_messages(ada: Agent) -> None:
    assert _cost(ada, 500) == _cost(ada, 1_000) <= 35


def test_a_session_is_found_by_its_name_among_those_that_the_caller_may_see(ada: Agent) -> None:
    grace = AgentFactory.create(space=ada.space)
    session, _ = sessions.adopt(agent=ada, name="s")
    assert sessions.find(caller=Caller(space=ada.space, agent=ada), name="s") == session
    assert sessions.find(caller=Caller(space=ada.space), name="s") == session
    for caller in (Caller(space=ada.space, agent=grace), Caller(space=AgentFactory.create().space)):
        with pytest.raises(NotFound):
            sessions.find(caller=caller, name="s")
    sessions.adopt(agent=grace, name="s")
    with pytest.raises(NotFound):
        sessions.find(caller=Caller(space=ada.space), name="s")
    assert sessions.find(caller=Caller(space=ada.space), name="s", agent=ada) == session


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ä", "s" * 201, "a\n", "\0"])
def test_a_session_of_another_shape_is_refused(ada: Agent, name: str) -> None:
    with pytest.raises(Invalid):
        sessions.adopt(agent=ada, name=name)
    assert not Session.objects.exists()


def test_r6_a_session_that_is_complete_keeps_the_time_when_it_became_so(ada: Agent) -> None:
    first, _ = sessions.adopt(agent=ada, name="s", complete=True)
    again, _ = sessions.adopt(agent=ada, name="s", complete=True)
    assert first.completed_at == again.completed_at is not None
    assert sessions.adopt(agent=ada, name="s", complete=False)[0].completed_at is None


def test_adopting_again_keeps_what_is_not_said(ada: Agent) -> None:
    first, created = sessions.adopt(agent=ada, name="s", title="T", metadata={"a": 1})
    again, created_again = sessions.adopt(agent=ada, name="s")
    assert (created, created_again, first.pk == again.pk) == (True, False, True)
    assert (again.title, again.metadata) == ("T", {"a": 1})
    with pytest.raises(Invalid):
        sessions.adopt(agent=ada, name="s", metadata={"a": "x" * 20_000})
    with pytest.raises(Invalid):
        sessions.adopt(agent=ada, name="s", title="t" * 501)
