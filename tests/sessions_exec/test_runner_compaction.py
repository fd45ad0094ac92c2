"""S11: what outgrows its model is summed up once, durably; and how a session is shown to a model (S7, S8)."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings as configured

from agentmemory.authorship import Author
from agentmemory.models import Message, Session
from agentmemory.services import outcomes, purging, removals
from sessions_exec.llm.messages import ConversationReply, FailureKind, ModelCallFailed
from sessions_exec.marks import SUMMARY
from sessions_exec.runner import compaction, runs, showing
from tests.factories import SessionFactory
from tests.support.running import admit, is_free, say, transcript
from tests.support.scripted import ScriptedModel, called, said, words

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("alone")]

TOO_LONG = ModelCallFailed(kind=FailureKind.INVALID_REQUEST, message="HTTP 400: prompt is too long")


@pytest.fixture
def session(settings: Any) -> Session:
    settings.AGENTMEMORY_WINDOW_TOKENS = 2_000
    return SessionFactory.create()


def talk(session: Session, turns: int, *, length: int = 300) -> None:
    """Turns of two messages that are numbered, each so many characters long."""
    for n in range(turns):
        say(session, f"u{n}", content=f"Question {n} ".ljust(length, "x"))
        say(session, f"a{n}", type="assistant", content=f"Answer {n} ".ljust(length, "x"))
        say(session, f"r{n}", type="result", content="")


def run(session: Session, model: ScriptedModel) -> str:
    return runs.run(session=session, model=model).state


def shown(session: Session) -> list[dict[str, Any]]:
    return showing.as_asked(showing.load(session))


def test_s11_what_is_too_long_is_summed_up_first_and_the_newest_part_stays(session: Session) -> None:
    talk(session, 10)
    admit(session, "i1", "And now?")
    model = ScriptedModel(said("Ten questions were answered."), said("Now this."))
    assert run(session, model) == "idle"
    assert model.purposes == ["summary", "answer"]
    asked = model.asked[0]
    assert (list(asked.tools), "Question 0" in words(list(map(dict, asked.messages)))) == ([], True)
    seen = words(model.last)
    assert "Ten questions were answered." in seen
    assert "Question 0" not in seen
    assert "Answer 9" in seen
    assert seen.endswith("And now?")


def test_s11_the_boundary_is_one_message_and_the_transcript_loses_nothing(session: Session) -> None:
    talk(session, 10)
    before = Message.objects.filter(session=session).count()
    admit(session, "i1", "And now?")
    run(session, ScriptedModel(said("Summed up."), said("Now this.")))
    boundary = Message.objects.get(session=session, subtype=SUMMARY)
    assert Message.objects.filter(session=session).count() == before + 4
    assert not boundary.is_speech
    kept = boundary.content[1]
    assert kept["kept_from"] == kept["summed_up_to"] + 1
    # The next turn needs no second summary, and sees the first.
    admit(session, "i2", "And then?")
    model = ScriptedModel(said("Then that."))
    assert run(session, model) == "idle"
    assert "Summed up." in words(model.last)


def test_s11_a_later_summary_sums_up_the_earlier_one_too(session: Session) -> None:
    talk(session, 10)
    admit(session, "i1", "And now?")
    run(session, ScriptedModel(said("The first summary."), said("Now this.")))
    for n in range(10, 20):
        say(session, f"u{n}", content=f"Question {n} ".ljust(300, "x"))
    say(session, "r20", type="result", content="")
    admit(session, "i2", "And then?")
    model = ScriptedModel(said("The second summary."), said("Then that."))
    run(session, model)
    assert "The first summary." in words([dict(each) for each in model.asked[0].messages])
    assert "The first summary." not in words(model.last)


@pytest.mark.parametrize(
    "summary",
    [
        said(" "),
        said("It beg", stop_reason="max_tokens"),
        said("No.", stop_reason="refusal"),
        called("memory_read", key="k"),
    ],
    ids=["blank", "cut", "refused", "a call"],
)
def test_s11_a_summary_that_is_not_whole_is_refused_and_the_turn_fails(
    session: Session, summary: ConversationReply
) -> None:
    talk(session, 10)
    admit(session, "i1", "And now?")
    assert run(session, ScriptedModel(summary)) == "idle"
    assert not Message.objects.filter(session=session, subtype=SUMMARY).exists()
    assert transcript(session)[-1][:2] == ("result", "error_too_long")
    assert is_free(session)


def test_s11_after_an_overflow_there_is_one_rebuild(session: Session) -> None:
    talk(session, 3)
    admit(session, "i1", "And now?")
    model = ScriptedModel(TOO_LONG, said("Summed up."), said("Now this."))
    assert run(session, model) == "idle"
    assert model.purposes == ["answer", "summary", "answer"]
    assert transcript(session)[-2][2] == "Now this."


def test_s11_after_a_second_overflow_there_is_none(session: Session) -> None:
    talk(session, 3)
    admit(session, "i1", "And now?")
    model = ScriptedModel(TOO_LONG, said("Summed up."), TOO_LONG)
    assert run(session, model) == "idle"
    assert model.purposes == ["answer", "summary", "answer"]
    assert transcript(session)[-1][:2] == ("result", "error_too_long")


def test_s11_an_answer_that_fills_the_window_is_an_overflow(session: Session) -> None:
    talk(session, 3)
    admit(session, "i1", "And now?")
    full = said("Half an", stop_reason="model_context_window_exceeded")
    assert run(session, ScriptedModel(full, said("Summed up."), said("Now this."))) == "idle"
    assert "Half an" not in str(transcript(session))


def test_s11_one_prompt_that_is_too_long_alone_fails_and_is_not_cut(session: Session) -> None:
    admit(session, "i1", "x" * 20_000)
    model = ScriptedModel(TOO_LONG)
    assert run(session, model) == "idle"
    assert transcript(session)[-1][:2] == ("result", "error_too_long")


def test_s11_a_summary_of_what_was_taken_back_since_is_not_shown(session: Session) -> None:
    talk(session, 10)
    admit(session, "i1", "And now?")
    run(session, ScriptedModel(said("The secret of question 0."), said("Now this.")))
    assert "The secret" in words(shown(session))
    removals.retract(session=session, uids=["u0"], reason="wrong")
    assert "The secret" not in words(shown(session))
    assert "Question 0" not in words(shown(session))
    assert "Question 1" in words(shown(session))


def test_a_summary_of_what_is_erased_goes_with_it(session: Session) -> None:
    talk(session, 10)
    admit(session, "i1", "And now?")
    run(session, ScriptedModel(said("The secret of question 0."), said("Now this.")))
    gone = Message.objects.get(session=session, uid="u0").pk
    olga = Author(kind="operator", name="olga")
    purging.purge(scope=purging.Scope(message_ids=[gone]), author=olga, reason="asked for")
    assert not Message.objects.filter(session=session, subtype=SUMMARY).exists()


def test_roles_take_turns_from_the_user_to_the_user(session: Session) -> None:
    say(session, "a0", type="assistant", content="I begin.")
    say(session, "u1", content="One.")
    say(session, "u2", content="Two.")
    say(session, "a1", type="assistant", content="Both.")
    assert [each["role"] for each in shown(session)] == ["user", "assistant", "user", "assistant", "user"]
    assert words(shown(session)[2:3]) == "One.\nTwo."


def test_tools_of_others_are_shown_as_text_and_every_call_of_ours_has_its_result(session: Session) -> None:
    calls = [
        {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}},
        {"type": "tool_use", "id": "t2", "name": "memory_read", "input": {"key": "k"}},
        {"type": "tool_use", "id": "t3", "name": "memory_read", "input": {"key": "l"}},
    ]
    say(session, "u1", content="Look.")
    say(session, "a1", type="assistant", content=calls)
    results = [
        {"type": "tool_result", "tool_use_id": "t1", "content": "a.txt"},
        {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "found"}]},
        {"type": "image", "source": {}},
    ]
    say(session, "u2", content=results)
    _, answer, told = shown(session)
    assert [block["type"] for block in answer["content"]] == ["text", "tool_use", "tool_use"]
    assert [block.get("tool_use_id") for block in told["content"]] == ["t2", "t3", None, None]
    assert told["content"][0]["content"] == "found"
    assert told["content"][1]["is_error"] is True
    assert "[a tool answered: a.txt]" in words([told])
    assert "image is not shown" in words([told])


def test_s8_what_ended_with_an_error_is_shown_as_that(session: Session) -> None:
    say(session, "u1", content="Look.")
    say(session, "a1", type="assistant", content=[{"type": "tool_use", "id": "t", "name": "memory_read", "input": {}}])
    answer = outcomes.assistant(session, "a1")
    assert answer is not None
    outcomes.fail(session, answer, tool_outcomes={"t": "outcome unknown: look first"})
    told = shown(session)[-1]
    assert told["content"][0]["content"] == "outcome unknown: look first"
    assert "ended with an error" in words([told])


def test_the_tail_begins_with_no_result_whose_call_is_summed_up(session: Session) -> None:
    talk(session, 8)
    say(session, "a", type="assistant", content=[{"type": "tool_use", "id": "t", "name": "memory_read", "input": {}}])
    say(session, "t", content=[{"type": "tool_result", "tool_use_id": "t", "content": "y" * 1_400}])
    say(session, "last", type="assistant", content="Yes.")
    found = showing.load(session)
    at = compaction.tail_from(found, tighter=False)
    assert found.messages[at].uid == "last"
    assert compaction.room() == configured.AGENTMEMORY_WINDOW_TOKENS
