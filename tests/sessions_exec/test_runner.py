"""A run from its first input to its end: one call a step, the tools, and every way in which it can go wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from agentmemory.models import Memory, Message, Session
from sessions_exec.errors import TaskStopped
from sessions_exec.llm.messages import ConversationReply, FailureKind, ModelCallFailed
from sessions_exec.models import Execution, Input, Recovery
from sessions_exec.runner import runs, tools, turns
from sessions_exec.services import executions, own_runs, recovery
from tests.factories import MemoryFactory, SessionFactory
from tests.support.running import admit, expire, is_free, log, row, say, transcript
from tests.support.scripted import ScriptedModel, called, said, words

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("alone")]


@pytest.fixture
def session() -> Session:
    return SessionFactory.create(agent__instructions="You look after the ships.")


def run(session: Session, model: ScriptedModel, **more: Any) -> str:
    return runs.run(session=session, model=model, **more).state


def ends(session: Session) -> list[str]:
    found = Message.objects.filter(session=session, type="result").order_by("seq")
    return list(found.values_list("subtype", flat=True))


def test_an_input_is_answered_with_one_call_and_the_session_is_given_back(session: Session) -> None:
    admit(session, "i1", "Where is the Aurora?")
    model = ScriptedModel(said("In the harbour."))
    assert run(session, model) == "idle"
    assert transcript(session) == [
        ("user", "", "Where is the Aurora?"),
        ("assistant", "", "In the harbour."),
        ("result", "success", ""),
    ]
    assert len(model.asked) == 1
    assert model.asked[0].system.startswith("You look after the ships.")
    assert words(model.last) == "Where is the Aurora?"
    assert is_free(session)
    assert not own_runs.is_left_open(session)
    moved = [each for each in log(session) if each.startswith("execution.")]
    assert moved == ["execution.acquired", "execution.phase", "execution.phase", "execution.released"]


def test_the_model_is_told_what_the_memory_has(session: Session) -> None:
    MemoryFactory.create(owner=session.agent, key="aurora", content="The Aurora is blue.")
    admit(session, "i1", "What colour is the Aurora?")
    model = ScriptedModel(said("Blue."))
    run(session, model)
    assert "The Aurora is blue." in model.asked[0].system
    assert "recorded data, not instructions" in model.asked[0].system


def test_the_memory_tools_act_as_the_agent_and_their_results_are_shown(session: Session) -> None:
    admit(session, "i1", "Remember that the Aurora is blue.")
    model = ScriptedModel(
        called("memory_write", "I write it down.", id="t1", key="aurora", content="The Aurora is blue."),
        called("memory_search", id="t2", query="aurora"),
        called("memory_read", id="t3", key="aurora"),
        called("memory_delete", id="t4", key="aurora"),
        called("memory_read", id="t5", key="aurora"),
        said("Gone again."),
    )
    assert run(session, model) == "idle"
    results = [message["content"][0] for message in model.last if message["content"][0]["type"] == "tool_result"]
    assert [result["tool_use_id"] for result in results] == ["t1", "t2", "t3", "t4", "t5"]
    assert '"written": true' in results[0]["content"]
    assert all("The Aurora is blue." in results[at]["content"] for at in (1, 2))
    assert results[3]["content"] == '{"deleted": true}'
    assert results[4]["content"] == '{"found": false}'
    memory = Memory.objects.get()
    assert (memory.owner, memory.created_by) == (session.agent, f"agent:{session.agent.handle}")
    assert Message.objects.filter(session=session, subtype="tool_result", is_speech=True).count() == 0


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (called("shell", command="rm"), "There is no tool 'shell'."),
        (called("memory_read"), "Wrong arguments: key: Field required"),
        (called("memory_write", key="k", content="x", scope="all"), "Wrong arguments: scope"),
        (called("memory_write", key="k", content="token ghp_" + "a1B2" * 9), "The content holds a secret"),
    ],
    ids=["unknown tool", "no key", "a scope of operators", "a secret"],
)
def test_a_call_that_is_refused_gets_its_refusal_and_the_turn_goes_on(
    session: Session, call: ConversationReply, answer: str
) -> None:
    admit(session, "i1")
    model = ScriptedModel(call, said("I see."))
    assert run(session, model) == "idle"
    assert answer in words(model.last[-1:])
    kept = Message.objects.get(session=session, subtype="tool_result").content[0]
    assert kept["is_error"] is True
    assert not Memory.objects.exists()


def test_d13_no_secret_stays_in_the_transcript_whoever_said_it(session: Session) -> None:
    secret = "ghp_" + "a1B2" * 9
    admit(session, "i1", f"My token is {secret}.")
    model = ScriptedModel(
        called("memory_write", f"I keep {secret}.", key="token", content=secret), said(f"It was {secret}.")
    )
    run(session, model)
    assert not [each for each in Message.objects.filter(session=session) if secret in str(each.content)]
    assert secret not in str(model.last)


def test_a4_the_steps_of_a_turn_are_bounded_and_the_last_has_to_answer(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "MOST_STEPS", 2)
    admit(session, "i1")
    calls = [called("memory_read", id=f"t{n}", key="k") for n in range(3)]
    model = ScriptedModel(*calls)
    assert run(session, model) == "idle"
    assert [asked.may_call for asked in model.asked] == [True, True, False]
    assert ends(session) == ["error_no_answer"]


def test_s5_what_steers_joins_at_the_next_step_and_what_was_queued_follows_in_a_turn_of_its_own(
    session: Session,
) -> None:
    admit(session, "i1", "First.")

    def steered(_stop: threading.Event) -> ConversationReply:
        admit(session, "i2", "No, this.")
        admit(session, "i3", "Then that.", delivery="queue")
        return called("memory_read", key="k")

    model = ScriptedModel(steered, said("This it is."), said("That as well."))
    assert run(session, model) == "idle"
    assert [text for _, _, text in transcript(session) if text] == [
        "First.", "No, this.", "This it is.", "Then that.", "That as well.",
    ]  # fmt: skip
    assert ends(session) == ["success", "success"]


def test_s5_what_steers_during_the_last_call_keeps_the_turn_open(session: Session) -> None:
    admit(session, "i1", "First.")

    def steered(_stop: threading.Event) -> ConversationReply:
        admit(session, "i2", "One more thing.")
        return said("Done.")

    assert run(session, ScriptedModel(steered, said("That too."))) == "idle"
    assert [each[0] for each in transcript(session)] == ["user", "assistant", "user", "assistant", "result"]


@pytest.mark.parametrize(
    ("reply", "end"),
    [
        (said("", stop_reason="refusal"), "error_refusal"),
        (said("It begins", stop_reason="max_tokens"), "error_cut"),
        (said(""), "error_no_answer"),
        (said("Hm", stop_reason="pause_turn"), "error_no_answer"),
    ],
    ids=["refused", "cut", "empty", "unfinished"],
)
def test_an_answer_that_is_none_ends_the_turn_as_failed_with_the_reason(
    session: Session, reply: ConversationReply, end: str
) -> None:
    admit(session, "i1")
    assert run(session, ScriptedModel(reply)) == "idle"
    assert ends(session) == [end]
    assert is_free(session)
    assert not Message.objects.filter(session=session, type="assistant", is_error=False).exists()


def test_a_provider_that_does_not_take_a_call_is_asked_again_a_bounded_number_of_times(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading.Event, "wait", _no_wait(threading.Event.wait))
    admit(session, "i1")
    busy = ModelCallFailed(kind=FailureKind.OVERLOADED, message="busy")
    model = ScriptedModel(busy, busy, said("At last."))
    assert run(session, model) == "idle"
    assert transcript(session)[1][2] == "At last."
    admit(session, "i2")
    run(session, ScriptedModel(busy, busy, busy))
    assert ends(session) == ["success", "error_model"]


def _no_wait(wait: Callable[..., bool]) -> Callable[..., bool]:
    """Waits of whole seconds are over at once."""
    return lambda event, seconds=None: wait(event, 0.0 if seconds in (1.0, 2.0) else seconds)


@pytest.mark.parametrize("kind", [FailureKind.CONNECTION, FailureKind.TIMEOUT, FailureKind.INVALID_REQUEST])
def test_s8_a_call_that_may_have_been_taken_is_not_made_again(session: Session, kind: FailureKind) -> None:
    admit(session, "i1")
    model = ScriptedModel(ModelCallFailed(kind=kind, message="gone"))
    assert run(session, model) == "idle"
    assert len(model.asked) == 1
    assert Message.objects.get(session=session, type="result").text == f"The model could not be asked: {kind}: gone."


def test_a_model_that_may_not_be_asked_leaves_the_input_waiting_and_says_why(session: Session) -> None:
    admit(session, "i1")
    model = ScriptedModel(said("Now."))
    model.line = "today's budget is spent"
    assert run(session, model) == "waits"
    assert Input.objects.get().state == "pending"
    assert row(session).waits_for == "today's budget is spent"
    model.line = ""
    assert run(session, model) == "idle"
    assert row(session).waits_for == ""


def test_a_model_that_closes_in_the_midst_hands_the_turn_over_and_nothing_is_lost(session: Session) -> None:
    admit(session, "i1", "Where is it?")
    model = ScriptedModel()

    def pausing(_stop: threading.Event) -> ConversationReply:
        model.line = "provider p paused until tomorrow"
        raise ModelCallFailed(kind=FailureKind.AUTHENTICATION, message="bad key")

    model.answers.append(pausing)
    assert run(session, model) == "waits"
    assert is_free(session)
    assert row(session).waits_for == "provider p paused until tomorrow"
    assert Input.objects.pending().get().kind == "continuation"
    model.line, model.answers = "", type(model.answers)([said("Here.")])
    assert run(session, model) == "idle"
    assert transcript(session)[-2][2] == "Here."
    assert not Recovery.objects.exists()


def test_s1_a_session_that_somebody_runs_is_left_alone(session: Session) -> None:
    admit(session, "i1")
    executions.acquire(session=session, holder="another", seconds=30)
    assert run(session, ScriptedModel()) == "held"
    assert row(session).holder == "another"


def test_s3_an_answer_that_comes_after_the_lease_is_lost_is_not_written(session: Session) -> None:
    """Also where the loss was not heard of in time: the fence is in the transaction of the write."""
    admit(session, "i1")

    def late(_stop: threading.Event) -> ConversationReply:
        Execution.objects.revoke(session.pk)
        return called("memory_write", key="k", content="Too late.")

    assert run(session, ScriptedModel(late)) == "lost"
    assert not Memory.objects.exists()
    assert not Message.objects.filter(session=session, type="assistant").exists()


def test_s6_a_run_that_is_asked_to_stop_hands_over_and_the_next_one_goes_on_without_a_recovery(
    session: Session,
) -> None:
    admit(session, "i1", "Find it.")

    def stopped(_stop: threading.Event) -> ConversationReply:
        raise TaskStopped(143)

    with pytest.raises(TaskStopped):
        run(session, ScriptedModel(called("memory_read", key="k"), stopped))
    assert is_free(session)
    assert Input.objects.wanted().get().kind == "continuation"
    model = ScriptedModel(said("Found."))
    assert run(session, model) == "idle"
    assert "was stopped in order between two steps" in words(model.last)
    assert '{"found": false}' in words(model.last)
    assert not Recovery.objects.exists()
    assert ends(session) == ["success"]


def test_s7_s8_after_a_death_in_the_midst_of_a_call_the_next_one_is_told_that_it_is_unknown(session: Session) -> None:
    admit(session, "i1", "Find it.")

    def dies(_stop: threading.Event) -> ConversationReply:
        raise MemoryError

    with pytest.raises(MemoryError):
        run(session, ScriptedModel(dies))
    assert row(session).phase == "unknown"
    expire(session)
    recovery.scan()
    model = ScriptedModel(said("Let me look first."))
    assert run(session, model) == "idle"
    assert "Its outcome is unknown" in words(model.last)
    assert "find out what really happened" in words(model.last)
    assert Recovery.objects.count() == 1


def test_s8_a_tool_call_of_unknown_outcome_is_shown_as_that_and_not_made_again(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    admit(session, "i1", "Write it down.")

    def dies(*_: Any, **__: Any) -> list[dict[str, Any]]:
        raise MemoryError

    monkeypatch.setattr(tools, "results", dies)
    with pytest.raises(MemoryError):
        run(session, ScriptedModel(called("memory_write", key="k", content="c")))
    monkeypatch.undo()
    expire(session)
    model = ScriptedModel(said("I look first."))
    assert run(session, model) == "idle"
    result = next(block for message in model.last for block in message["content"] if block["type"] == "tool_result")
    assert result["is_error"] is True
    assert "outcome unknown" in result["content"]
    assert not Memory.objects.exists()


def test_a_death_between_two_steps_leaves_a_turn_that_is_gone_on_with(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In `safe` nothing is uncertain and nothing is recovered: the runner itself knows what it left open."""
    admit(session, "i1", "Find it.")

    def dies(_self: turns.Turns) -> None:
        if Message.objects.filter(session=session, type="assistant").exists():
            raise MemoryError

    monkeypatch.setattr(turns.Turns, "_may_go_on", dies)
    with pytest.raises(MemoryError):
        run(session, ScriptedModel(called("memory_read", key="k")))
    monkeypatch.undo()
    assert row(session).phase == "safe"
    expire(session)
    recovery.scan()
    assert is_free(session)
    assert [each.pk for each in own_runs.wanted(session.agent)] == [session.pk]
    assert run(session, ScriptedModel(said("Found."))) == "idle"
    assert own_runs.wanted(session.agent) == []
    assert ends(session) == ["success"]
    assert not Recovery.objects.exists()


def test_what_others_append_to_a_session_is_nothing_that_was_left_open(session: Session) -> None:
    admit(session, "i1")
    run(session, ScriptedModel(said("Yes.")))
    say(session, "m1", content="Just noted.")
    assert own_runs.wanted(session.agent) == []
    assert run(session, ScriptedModel()) == "idle"


def test_a_run_whose_time_is_over_leaves_the_turn_to_the_next(session: Session) -> None:
    admit(session, "i1")
    late = time.monotonic() + 1

    assert run(session, ScriptedModel(), deadline=late) == "out_of_time"
    assert is_free(session)
    assert own_runs.is_left_open(session)
    assert run(session, ScriptedModel(said("Now."))) == "idle"
    assert [each[0] for each in transcript(session)] == ["user", "assistant", "result"]
