"""Runs with all that belongs to them: the agent's provider, its pauses, budget and books, the queue, the command."""

from __future__ import annotations

import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from django_q.models import OrmQ

from agentmemory.models import Agent, Message, Provider, Session
from agentmemory.services import providers
from config import entry, regular, runs
from distillation.services import calls, gates, overview, providing, spending
from sessions_exec import tasks
from sessions_exec.errors import TaskStopped
from sessions_exec.models import Execution, Input, ModelCall
from sessions_exec.services import executions, inbox, operations, own_runs
from tests.factories import AgentFactory, MemoryFactory, ProviderFactory, SessionFactory
from tests.support import model_server
from tests.support.model_server import ModelServer
from tests.support.running import admit, expire, row, say, transcript

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("alone")]

KEY = "sk-of-tests-0123456789"


@pytest.fixture
def server(settings: Any) -> Iterator[ModelServer]:
    with ModelServer() as running:
        settings.ANTHROPIC_BASE_URL = running.address
        settings.AGENTMEMORY_PROVIDER_KEYS = {"ANTHROPIC_API_KEY": KEY}
        yield running


@pytest.fixture
def session() -> Session:
    return SessionFactory.create(agent__run_here=True, agent__handle="ada", agent__space__slug="acme", name="s1")


def run(session: Session) -> str:
    session = Session.objects.select_related("agent__space", "space").get(pk=session.pk)
    return runs.run(session).state


def queued() -> list[int]:
    """The sessions that tasks of the runner were made for."""
    found = [task.task["args"] for task in OrmQ.objects.order_by("id")]
    return [argument for function, argument, *_ in found if function == runs.TASK]


def work_off() -> None:
    """Do what lies in the queue, as a worker does."""
    for task in OrmQ.objects.order_by("id"):
        function, argument, name = task.task["args"]
        task.delete()
        tasks.perform(function, argument, name)


def test_an_input_is_answered_by_the_agents_model_with_one_streamed_call_that_is_booked(
    server: ModelServer, session: Session
) -> None:
    server.script(model_server.streamed("In the ", "harbour.", input_tokens=120, output_tokens=30))
    admit(session, "i1", "Where is the Aurora?")
    assert run(session) == "idle"
    (request,) = server.requests
    assert (request.body["stream"], request.body["model"]) == (True, providers.BUILT_IN_MODEL)
    assert [tool["name"] for tool in request.body["tools"]] == [
        "memory_write", "memory_search", "memory_read", "memory_delete",
    ]  # fmt: skip
    assert transcript(session)[1] == ("assistant", "", "In the harbour.")
    call = ModelCall.objects.get()
    assert (call.agent, call.session, call.epoch, call.purpose) == (session.agent, session, 1, "answer")
    assert (call.outcome, call.input_tokens, call.output_tokens) == ("answered", 120, 30)


def test_what_runs_cost_is_in_the_same_books_as_what_distillation_costs(server: ModelServer, session: Session) -> None:
    Provider.objects.update_or_create(
        name="anthropic",
        defaults={"kind": "anthropic", "key_variable": "ANTHROPIC_API_KEY", "price_in": 1, "price_out": 10},
    )
    server.script(model_server.streamed("Yes.", input_tokens=1_000_000, output_tokens=100_000))
    admit(session, "i1")
    run(session)
    (line,) = spending.lines(days=30, most=10)
    assert (line.agent, line.usage.calls, line.usage.failed, line.usage.cost) == ("ada", 1, 0, Decimal(2))
    assert spending.of(session.agent, days=30) == line.usage
    assert overview.standing().tokens_today == 1_100_000
    (asked,) = calls.in_the_last_day().values()
    assert (asked.made, asked.failed, asked.tokens) == (1, 0, 1_100_000)


def test_d25_what_a_call_used_is_booked_though_the_process_is_stopped_in_its_midst(
    server: ModelServer, session: Session
) -> None:
    def stop(_text: str) -> None:
        raise TaskStopped(143)

    server.script(model_server.streamed("In the ", "harbour.", input_tokens=120))
    admit(session, "i1")
    with pytest.raises(TaskStopped):
        runs.run(session, on_text=stop)
    call = ModelCall.objects.get()
    assert (call.outcome, call.failure, call.input_tokens) == ("failed", "stopped", 120)


def test_d21_when_the_days_budget_is_spent_the_input_waits_and_says_so(server: ModelServer, session: Session) -> None:
    session.space.daily_tokens = 100
    session.space.save()
    admit(session, "i1")
    assert run(session) == "idle"
    assert gates.spent_today(session.space, now=timezone.now()) == 120
    admit(session, "i2")
    assert run(session) == "waits"
    assert len(server.requests) == 1
    assert Input.objects.pending().get().uid == "i2"
    assert row(session).waits_for == "today's budget of 100 tokens is spent"


def test_d19_a_key_that_is_refused_pauses_the_provider_and_the_turn_waits(
    server: ModelServer, session: Session
) -> None:
    server.script(model_server.status(401, error_type="authentication_error", words="bad key"))
    admit(session, "i1", "Hello?")
    assert run(session) == "waits"
    provider = Provider.objects.get(name="anthropic")
    assert (provider.failures, provider.paused_until is not None) == (1, True)
    assert "paused until" in row(session).waits_for
    assert "bad key" in row(session).waits_for
    call = ModelCall.objects.get()
    assert (call.outcome, call.failure) == ("failed", "authentication")
    assert run(session) == "waits"
    assert len(server.requests) == 1
    providing.resume(provider_id=provider.pk, operator="olga", reason="new key")
    assert run(session) == "idle"
    assert transcript(session)[-2][2] == "Understood."


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"status": "paused"}, "agent ada is paused"),
        ({"archived_at": "2026-01-01T00:00Z"}, "its space or its agent is archived"),
    ],
    ids=["paused", "archived"],
)
def test_d16_an_agent_that_may_not_work_is_not_run(
    server: ModelServer, session: Session, changes: dict[str, Any], line: str
) -> None:
    admit(session, "i1")
    Agent.objects.update(**changes)
    assert run(session) == "waits"
    assert row(session).waits_for == line
    assert server.requests == []


def test_a_provider_that_runs_agents_itself_is_not_asked(session: Session) -> None:
    session.agent.provider = ProviderFactory.create(name="desk", kind="acp")
    session.agent.save()
    admit(session, "i1")
    assert run(session) == "waits"
    assert row(session).waits_for == "provider desk cannot be asked from here"


def test_without_a_key_the_memory_is_searched_and_the_answer_says_that_nobody_thought(session: Session) -> None:
    MemoryFactory.create(owner=session.agent, key="aurora", content="The Aurora is blue.")
    admit(session, "i1", "What colour is the Aurora?")
    assert run(session) == "idle"
    answer = transcript(session)[-2][2]
    assert answer.startswith("No model is set up here")
    assert "aurora (curated): The Aurora is blue." in answer
    admit(session, "i2", "Zzyzx?")
    run(session)
    assert transcript(session)[-2][2].endswith("memory has nothing on them.")


def test_a_wish_makes_one_task_for_an_agent_that_is_run_here_and_the_task_answers_it(
    server: ModelServer, session: Session
) -> None:
    admit(session, "i1")
    admit(session, "i2")
    assert queued() == [session.pk]
    work_off()
    assert [text for kind, _, text in transcript(session) if kind == "assistant"] == ["Understood."]
    assert not Input.objects.pending().exists()
    admit(session, "i3")
    assert queued() == [session.pk]


def test_s7_what_an_operator_recovers_goes_on_at_once(session: Session) -> None:
    executions.acquire(session=session, holder="dead")
    expire(session)
    operations.recover(session_id=session.pk, operator="olga", reason="because")
    assert queued() == [session.pk]


def test_agents_that_are_not_run_here_are_left_to_their_own_runners(server: ModelServer) -> None:
    session = SessionFactory.create()
    admit(session, "i1")
    assert queued() == []
    assert runs.run_session(session.pk) == "not run here"
    assert Input.objects.pending().exists()


def test_s6_a_lost_task_is_made_again_and_a_doubled_one_does_no_harm(server: ModelServer, session: Session) -> None:
    admit(session, "i1")
    OrmQ.objects.all().delete()
    inbox.sweep()
    assert queued() == []
    Execution.objects.update(asked_at="2026-01-01T00:00Z")
    inbox.sweep()
    assert queued() == [session.pk]
    assert runs.run_session(session.pk) == "idle"
    assert runs.run_session(session.pk) == "idle"
    assert len(server.requests) == 1
    assert runs.run_session(10**9) == "gone"


def test_a_turn_that_was_left_open_is_taken_up_by_a_sweep(server: ModelServer, session: Session, settings: Any) -> None:
    settings.AGENTMEMORY_TASK_TIMEOUT = 1
    admit(session, "i1")
    assert runs.run_session(session.pk) == "out_of_time"
    assert queued() == [session.pk, session.pk]
    OrmQ.objects.all().delete()
    Execution.objects.update(asked_at="2026-01-01T00:00Z")
    settings.AGENTMEMORY_TASK_TIMEOUT = 600
    assert "open turns" in [tick.name for tick in regular.ticks()]
    assert runs.sweep() == "1 turns taken up again"
    work_off()
    assert transcript(session)[-2][2] == "Understood."
    assert runs.sweep() == "0 turns taken up again"


def test_the_command_answers_what_waits_aloud_and_ends(
    server: ModelServer, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    server.script(model_server.streamed("Good ", "day."))
    admit(session, "i1")
    other = SessionFactory.create(agent=session.agent, name="s2")
    admit(other, "i1")
    expire_one = executions.acquire(session=SessionFactory.create(agent=session.agent, name="s3"), holder="dead")
    expire(expire_one.session)
    call_command("run_agent", "--space", "acme", "--agent", "ada", "--session", "s1", "--once")
    told = capsys.readouterr().out
    assert told == "s1:\nGood day.\n"
    assert Input.objects.pending().filter(session=other).exists()
    call_command("run_agent", "--space", "acme", "--agent", "ada", "--once")
    assert capsys.readouterr().out.count("Understood.") == 2
    assert own_runs.wanted(session.agent) == []
    call_command("run_agent", "--space", "acme", "--agent", "ada", "--once")
    assert capsys.readouterr().out == "Nothing waits to be answered now.\n"


@pytest.mark.usefixtures("own_log")
def test_ctrl_c_ends_the_command_without_a_trace(
    session: Session, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", pressed)
    monkeypatch.setattr(entry, "prepare", lambda **_: None)
    with pytest.raises(SystemExit) as ended:
        entry.command_line(["manage.py", "run_agent", "--space", "acme", "--agent", "ada"])
    assert ended.value.code == 130
    assert capsys.readouterr().out == "Waiting for inputs of ada; Ctrl-C ends it.\n"


def test_the_command_says_why_it_cannot(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CommandError, match="There is no agent 'nobody'"):
        call_command("run_agent", "--space", "acme", "--agent", "nobody", "--once")
    Agent.objects.update(status="paused")
    admit(session, "i1")
    call_command("run_agent", "--space", "acme", "--agent", "ada", "--once")
    assert "[waits: agent ada is paused]" in capsys.readouterr().out


def test_two_agents_of_one_handle_are_not_confused(server: ModelServer, session: Session) -> None:
    stranger = SessionFactory.create(agent=AgentFactory.create(handle="ada"), name="s1")
    admit(stranger, "i1")
    call_command("run_agent", "--space", "acme", "--agent", "ada", "--once")
    assert Input.objects.pending().get().session == stranger
    say(stranger, "m1")
    assert Message.objects.filter(session=stranger, type="assistant").count() == 0
