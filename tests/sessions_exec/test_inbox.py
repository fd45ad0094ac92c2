"""The inbox: admitted, promoted, changed, cancelled, found again (S4 to S6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agentmemory.errors import Invalid, NotFound, UidConflict
from agentmemory.models import Message, Session
from agentmemory.services import removals, transcripts
from sessions_exec import signals
from sessions_exec.errors import Crowded, InputConflict
from sessions_exec.models import Input
from sessions_exec.services import events, executions, inbox, prompts, recovery
from tests.factories import SessionFactory
from tests.support.running import acquire, expire, log, say

pytestmark = pytest.mark.django_db


@pytest.fixture
def session() -> Session:
    return SessionFactory.create()


@pytest.fixture
def wakes() -> Iterator[list[int]]:
    """The sessions that are wanted, as they are told."""
    heard: list[int] = []

    def hear(sender: object, *, session_id: int, **_: Any) -> None:
        heard.append(session_id)

    signals.session_wanted.connect(hear)
    yield heard
    signals.session_wanted.disconnect(hear)


def admit(session: Session, uid: str, delivery: str = "steer", **given: Any) -> Input:
    return inbox.admit(session=session, uid=uid, prompt=f"Prompt {uid}.", delivery=delivery, **given)[0]


def promote(session: Session, held: executions.Held, boundary: str) -> list[str]:
    return [row.uid for row in inbox.promote(session=session, guard=held, boundary=boundary)]


def test_s4_an_exact_retry_gives_the_stored_admission(session: Session) -> None:
    prompt = [{"type": "text", "text": "Hi.", "extra": 1}]
    first, created = inbox.admit(session=session, uid="i1", prompt=prompt)
    again, created_again = inbox.admit(
        session=session, uid="i1", prompt=[{"extra": 1, "text": "Hi.", "type": "text"}], resume=False
    )

    assert (created, created_again) == (True, False)
    assert first.pk == again.pk
    assert log(session) == ["input.admitted"]


def test_s4_an_exact_retry_is_known_after_a_flip_a_promotion_and_a_cancellation(session: Session) -> None:
    admit(session, "flipped")
    inbox.flip(session=session, uid="flipped", delivery="queue")
    admit(session, "promoted")
    promote(session, acquire(session), "step")
    admit(session, "cancelled")
    inbox.cancel(session=session, uid="cancelled")

    assert admit(session, "flipped").delivery == "queue"
    assert admit(session, "promoted").state == "promoted"
    assert admit(session, "cancelled").state == "cancelled"


def test_s4_any_other_use_of_an_id_conflicts(session: Session) -> None:
    admit(session, "i1")
    say(session, "m1")

    with pytest.raises(InputConflict):
        inbox.admit(session=session, uid="i1", prompt="Something else.")
    with pytest.raises(InputConflict):
        admit(session, "i1", "queue")
    with pytest.raises(InputConflict):
        admit(session, "m1")
    with pytest.raises(UidConflict):
        say(session, "i1", content="Prompt i1.")
    assert admit(SessionFactory.create(), "i1").state == "pending"


def test_s4_secrets_are_replaced_at_the_door_and_the_retry_is_judged_as_received(session: Session) -> None:
    prompt = "Use sk-ant-api03-" + "Ab1" * 30 + "AA."
    row, _ = inbox.admit(session=session, uid="i1", prompt=prompt)
    again, created = inbox.admit(session=session, uid="i1", prompt=prompt)
    promote(session, held := acquire(session), "step")
    repeated = transcripts.append(
        session=session, messages=[transcripts.NewMessage(uid="i1", type="user", content=prompt)], guard=held
    )

    assert "sk-ant" not in str(row.prompt)
    assert sum(row.redactions.values()) == 1
    assert not created
    assert again.pk == row.pk
    assert repeated.duplicates == 1
    assert "sk-ant" not in str(Message.objects.get(session=session, uid="i1").content)


@pytest.mark.parametrize("prompt", ["", "  ", [], None, {"type": "text"}])
def test_an_empty_prompt_is_refused(session: Session, prompt: Any) -> None:
    with pytest.raises(Invalid):
        inbox.admit(session=session, uid="i1", prompt=prompt)


def test_as_much_may_wait_and_no_more(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "MOST_PENDING", 2)
    admit(session, "i1")
    admit(session, "i2")
    with pytest.raises(Crowded):
        admit(session, "i3")
    assert admit(session, "i2").state == "pending"


def test_s5_steers_promote_in_order_at_a_step_and_queued_ones_one_by_one_when_idle(session: Session) -> None:
    for uid, delivery in (("q1", "queue"), ("s1", "steer"), ("q2", "queue"), ("s2", "steer")):
        admit(session, uid, delivery)
    held = acquire(session)

    assert promote(session, held, "step") == ["s1", "s2"]
    assert promote(session, held, "step") == []
    assert promote(session, held, "idle") == ["q1"]
    admit(session, "s3")
    assert promote(session, held, "idle") == ["s3"]
    assert promote(session, held, "idle") == ["q2"]
    assert promote(session, held, "idle") == []
    messages = list(Message.objects.filter(session=session).values_list("seq", "uid", "type", "delivery"))
    assert messages == [
        (seq, uid, "user", "consumed") for seq, uid in enumerate(["s1", "s2", "q1", "s3", "q2"], start=1)
    ]
    assert sorted(Input.objects.values_list("seq", "uid")) == [message[:2] for message in messages]


def test_s5_a_promotion_and_its_message_are_one(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    admit(session, "s1")
    held = acquire(session)

    def fail(**_: Any) -> None:
        raise RuntimeError("in the midst")

    monkeypatch.setattr(transcripts, "append", fail)
    with pytest.raises(RuntimeError):
        promote(session, held, "step")
    monkeypatch.undo()
    assert Input.objects.get(uid="s1").state == "pending"
    assert promote(session, held, "step") == ["s1"]


def test_a_flip_moves_what_waits_and_nothing_else(session: Session) -> None:
    admit(session, "i1", "queue")
    held = acquire(session)
    inbox.flip(session=session, uid="i1", delivery="steer")
    assert promote(session, held, "step") == ["i1"]

    with pytest.raises(InputConflict):
        inbox.flip(session=session, uid="i1", delivery="queue")
    with pytest.raises(InputConflict):
        inbox.cancel(session=session, uid="i1")
    with pytest.raises(NotFound):
        inbox.flip(session=session, uid="i2", delivery="queue")
    with pytest.raises(Invalid):
        inbox.flip(session=session, uid="i1", delivery="fax")


def test_a_cancelled_input_is_never_promoted(session: Session) -> None:
    admit(session, "i1")
    inbox.cancel(session=session, uid="i1")
    inbox.cancel(session=session, uid="i1")
    assert promote(session, acquire(session), "idle") == []
    assert log(session).count("input.cancelled") == 1


def test_s6_a_release_counts_what_waits_and_wakes_who_runs_it(session: Session, wakes: list[int]) -> None:
    held = acquire(session)
    admit(session, "i1")
    admit(session, "i2", "queue")
    assert wakes == []
    assert executions.release(session=session, held=held).pending == 2
    assert wakes == [session.pk]


def test_s6_an_interrupt_clears_earlier_wishes_and_no_input(session: Session, wakes: list[int]) -> None:
    held = acquire(session)
    admit(session, "i1")
    executions.interrupt(session=session)
    assert executions.release(session=session, held=held).pending == 1
    assert wakes == []
    assert inbox.sweep() == 0
    assert promote(session, acquire(session), "step") == ["i1"]


def test_s6_a_wake_after_an_interrupt_counts_once_the_old_execution_has_settled(
    session: Session, wakes: list[int]
) -> None:
    held = acquire(session)
    admit(session, "i1")
    executions.interrupt(session=session)
    admit(session, "i2")
    assert wakes == []
    assert executions.release(session=session, held=held).pending == 2
    assert wakes == [session.pk]


def test_s6_a_retry_or_a_flip_after_an_interrupt_wishes_anew(session: Session, wakes: list[int]) -> None:
    held = acquire(session)
    admit(session, "i1")
    admit(session, "i2", "queue")
    executions.interrupt(session=session)
    executions.release(session=session, held=held)
    admit(session, "i1")
    assert wakes == [session.pk]
    executions.interrupt(session=session)
    inbox.flip(session=session, uid="i2", delivery="steer")
    assert wakes == [session.pk] * 2


def test_s6_what_is_admitted_without_a_wish_wakes_nobody(session: Session, wakes: list[int]) -> None:
    admit(session, "i1", resume=False)
    assert wakes == []
    assert inbox.sweep() == 0
    admit(session, "i2")
    assert wakes == [session.pk]


def test_s6_a_sweep_finds_inputs_that_wait_without_an_execution(session: Session, wakes: list[int]) -> None:
    for one in (session, SessionFactory.create(), SessionFactory.create()):
        admit(one, "i1")
        admit(one, "i2")
    held = acquire(session)
    other = Session.objects.exclude(pk=session.pk).first()
    assert other is not None
    acquire(other)
    expire(other)
    wakes.clear()

    assert inbox.sweep() == 1
    assert not {session.pk, other.pk} & set(wakes)
    # The expired one is settled first, and told of then.
    assert recovery.scan().stranded == 2
    executions.release(session=session, held=held)
    assert inbox.sweep() == 3


def test_a_prompt_is_kept_once_and_goes_with_its_message(session: Session) -> None:
    for uid in ("i1", "i2"):
        admit(session, uid)
    held = acquire(session)
    promote(session, held, "step")
    admit(session, "i3")
    inbox.cancel(session=session, uid="i3")
    assert set(Input.objects.values_list("prompt", flat=True)) == {None}
    rows = list(Input.objects.order_by("pk"))
    assert prompts.of(rows) == {"i1": "Prompt i1.", "i2": "Prompt i2.", "i3": None}
    removals.remove(session=session, uids=["i1"], reason="said by mistake", guard=held)
    assert prompts.of(rows)["i1"] is None
    assert [e.data["prompt"] for e in events.page(session=session, after=0, limit=2)] == [None, "Prompt i2."]
