"""The edges of a run: what is counted, what comes first, what is not the runner's own (S5 to S11, A4)."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from django.utils import timezone

from agentmemory.callers import Caller
from agentmemory.models import Agent, Memory, Message, Session, Space
from agentmemory.services import transcripts
from sessions_exec.errors import LeaseLost
from sessions_exec.llm.messages import ConversationReply, FailureKind, ModelCallFailed
from sessions_exec.marks import SUMMARY
from sessions_exec.models import Execution
from sessions_exec.runner import compaction, holding, runs, showing, tools, turns
from sessions_exec.services import executions, inbox, own_runs, recovery
from tests.factories import SessionFactory
from tests.support.running import acquire, admit, expire, is_free, row, say, transcript
from tests.support.scripted import ScriptedModel, answered, called, said

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("alone")]


@pytest.fixture
def session() -> Session:
    return SessionFactory.create()


def run(session: Session, model: ScriptedModel, **more: Any) -> str:
    return runs.run(session=session, model=model, **more).state


def test_a4_whoever_says_something_new_may_have_all_of_it_worked_on(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "MOST_STEPS", 2)
    admit(session, "i1", "First.")

    def steered(_stop: threading.Event) -> ConversationReply:
        admit(session, "i2", "One more thing.")
        return called("memory_read", id="t2", key="k")

    model = ScriptedModel(called("memory_read", id="t1", key="k"), steered, said("Both."))
    assert run(session, model) == "idle"
    assert [asked.may_call for asked in model.asked] == [True, True, True]


def test_a4_so_many_calls_of_one_answer_are_made_and_no_more(session: Session) -> None:
    calls = [{"id": f"t{n}", "name": "memory_read", "input": {"key": "k"}} for n in range(tools.MOST_CALLS + 1)]
    results = tools.results(calls, caller=Caller(space=session.space, agent=session.agent))
    assert [bool(each.get("is_error")) for each in results] == [False] * tools.MOST_CALLS + [True]


def test_s5_a_turn_that_was_left_open_ends_before_what_was_queued_begins(session: Session) -> None:
    admit(session, "i1", "First.")
    assert run(session, ScriptedModel(), deadline=time.monotonic() + 1) == "out_of_time"
    admit(session, "i2", "Then that.", delivery="queue")
    assert run(session, ScriptedModel(said("One."), said("Two."))) == "idle"
    assert [text for _, _, text in transcript(session) if text] == ["First.", "One.", "Then that.", "Two."]
    assert Message.objects.filter(session=session, type="result").count() == 2


def test_a_turn_that_another_runner_left_is_not_this_services_to_go_on_with(session: Session) -> None:
    admit(session, "i1", "First.")
    run(session, ScriptedModel(), deadline=time.monotonic() + 1)
    assert own_runs.is_left_open(session)
    other = acquire(session, "another")
    executions.renew(session=session, held=other, phase="safe")
    expire(session)
    recovery.scan()
    assert not own_runs.is_left_open(session)
    assert own_runs.wanted(session.agent) == []


def test_s6_what_stopped_a_run_first_is_what_it_tells(session: Session) -> None:
    """An interrupt that was heard ends the turn as one, though the time is nearly over when it is looked at."""
    execution = executions.acquire(session=session, holder="me", seconds=30)
    held = holding.Holding(session, execution, since=time.monotonic() - 25.5)
    held._stop(holding.Interrupted("The run was interrupted."))
    with pytest.raises(holding.Interrupted):
        held.check()


def test_s7_what_a_helper_says_is_not_the_answer_of_its_execution(session: Session) -> None:
    """Else a death in the midst of its work would complete the helper's message, and leave the answer's calls open."""
    held = acquire(session)
    say(session, "a1", type="assistant", guard=held)
    helper = transcripts.NewMessage(uid="h1", type="assistant", content="Looked.", parent_tool_use_id="t1")
    transcripts.append(session=session, messages=[helper], guard=held)
    assert row(session).assistant_uid == "a1"


def test_s11_a_summary_that_others_wrote_is_no_boundary(session: Session) -> None:
    """An imported transcript has summaries of its client: they hide nothing of what was said."""
    say(session, "u1", content="What was said.")
    foreign = transcripts.NewMessage(uid="c1", type="system", content="All of it, in short.", subtype=SUMMARY)
    transcripts.append(session=session, messages=[foreign])
    say(session, "u2", content="What else was said.")
    shown = showing.load(session)
    assert (shown.summary, [each.uid for each in shown.messages]) == ("", ["u1", "u2"])


def test_s11_after_an_overflow_less_stays_as_it_was_said(session: Session, settings: Any) -> None:
    settings.AGENTMEMORY_WINDOW_TOKENS = 2_000
    for n in range(10):
        say(session, f"u{n}", content="x" * 300)
    shown = showing.load(session)
    kept = [10 - compaction.tail_from(shown, tighter=tighter) for tighter in (False, True)]
    assert kept == [4, 2]


def test_s11_a_summary_of_all_that_was_said_keeps_nothing_beside_it(session: Session) -> None:
    say(session, "u1", content="What was said.")
    shown = showing.load(session)
    boundary = compaction.boundary(said("In short."), shown, 1, uid="run.1.1.summary")
    transcripts.append(session=session, messages=[boundary])
    after = showing.load(session)
    assert (after.summary, list(after.messages)) == ("In short.", [])


def test_r4_a_model_is_not_shown_what_was_not_delivered(session: Session) -> None:
    waiting = transcripts.NewMessage(uid="u2", type="user", content="Held back.", delivery="deferred")
    say(session, "u1", content="Said.")
    transcripts.append(session=session, messages=[waiting])
    shown = showing.as_asked(showing.load(session))
    assert [block["text"] for message in shown for block in message["content"]] == ["Said."]


def test_s5_a_turn_that_failed_ends_though_somebody_steers_by_then(session: Session) -> None:
    admit(session, "i1", "First.")

    def refused(_stop: threading.Event) -> ConversationReply:
        admit(session, "i2", "One more thing.")
        return said("", stop_reason="refusal")

    assert run(session, ScriptedModel(refused, said("That."))) == "idle"
    ends = Message.objects.filter(session=session, type="result").order_by("seq").values_list("subtype", flat=True)
    assert list(ends) == ["error_refusal", "success"]


def test_s6_a_hand_over_between_two_turns_asks_nobody_to_go_on(session: Session) -> None:
    since = time.monotonic()
    execution = executions.acquire(session=session, holder="me")
    runs.hand_over(session, holding.Holding(session, execution, since=since))
    assert is_free(session)
    assert not inbox.pending(session=session).exists()


def test_s3_a_term_is_counted_from_before_its_renewal_was_asked_for(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer may have been long on its way: the database's term began before it came."""
    clock = [time.monotonic()]
    monkeypatch.setattr(holding, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    execution = executions.acquire(session=session, holder="me", seconds=30)
    held = holding.Holding(session, execution, since=clock[0])
    real = executions.renew

    def slow(**values: Any) -> Any:
        renewed = real(**values)
        clock[0] += 20
        return renewed

    monkeypatch.setattr(executions, "renew", slow)
    held.move("unknown")
    clock[0] += 4
    held.check()
    clock[0] += 2
    with pytest.raises(LeaseLost):
        held.check()


@pytest.mark.parametrize("off", ["status", "agent", "space", "run_here"])
def test_d16_a_session_of_an_agent_that_may_not_work_is_not_asked_for(off: str) -> None:
    session = SessionFactory.create(agent__run_here=off != "run_here")
    now = timezone.now()
    if off == "space":
        Space.objects.filter(pk=session.space_id).update(archived_at=now)
    agent = Agent.objects.filter(pk=session.agent_id)
    if off == "status":
        agent.update(status="paused")
    if off == "agent":
        agent.update(archived_at=now)
    assert not own_runs.runs_here(session.pk)
    agent.update(status="active", archived_at=None, run_here=True)
    Space.objects.filter(pk=session.space_id).update(archived_at=None)
    assert own_runs.runs_here(session.pk)


def test_s8_the_calls_of_an_answer_that_was_cut_are_not_made(session: Session) -> None:
    admit(session, "i1", "Write it down.")
    call = {"type": "tool_use", "id": "t1", "name": "memory_write", "input": {"key": "k", "content": "half of"}}
    cut = answered([{"type": "text", "text": "I write"}, call], "max_tokens")
    assert run(session, ScriptedModel(cut)) == "idle"
    assert not Memory.objects.exists()
    assert [each[:2] for each in transcript(session)][-2:] == [("assistant", ""), ("result", "error_cut")]


def test_s7_after_a_call_that_failed_nothing_is_uncertain(session: Session) -> None:
    """A death while it waits for the next attempt leaves nothing to be told of."""
    phases: list[str | None] = []

    class Looking(ScriptedModel):
        def closed(self) -> str:
            phases.append(Execution.objects.filter(pk=session.pk).values_list("phase", flat=True).first())
            return ""

    admit(session, "i1")
    run(session, Looking(ModelCallFailed(kind=FailureKind.SERVER, message="broken")))
    assert phases[1:] == ["ready", "safe"]
