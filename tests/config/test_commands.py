"""The commands that span the apps, without processes of their own."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from pytest_django import Settings

from agentmemory.models import Agent, Memory, Message, Provider, Session, Space, Token
from agentmemory.services import sessions, spaces, tokens, transcripts
from config import demo, health, regular
from distillation.models import Cursor, DistillationPass
from distillation.services import passes
from sessions_exec import queue
from sessions_exec.leases import ClockTimestamp
from sessions_exec.models import Heartbeat, Tick
from sessions_exec.services import heartbeats, ticks

pytestmark = pytest.mark.django_db


def run(*command: str) -> str:
    out = StringIO()
    call_command(*command, stdout=out, stderr=out)
    return out.getvalue()


def a_session(handle: str = "ada", name: str = "s1") -> Session:
    agent = spaces.ensure_agent(spaces.ensure("home"), handle)
    session, _ = sessions.adopt(agent=agent, name=name)
    said = [
        ("u", "user", "We decided to use PostgreSQL 18 for the ledger, because of its MERGE."),
        ("r", "result", "ok"),
    ]
    transcripts.append(
        session=session, messages=[transcripts.NewMessage(uid=uid, type=kind, content=text) for uid, kind, text in said]
    )
    return session


# --- issue_token ---


def test_a_token_stands_alone_on_the_last_line_and_proves_its_agent() -> None:
    said = run("issue_token", "--space", "home", "--agent", "ada", "--create", "--name", "laptop")
    caller = tokens.authenticate(said.splitlines()[-1])
    assert caller
    assert (caller.space.slug, str(caller.agent), caller.name) == ("home", "ada", "laptop")


def test_without_an_agent_it_is_for_the_whole_space() -> None:
    caller = tokens.authenticate(run("issue_token", "--space", "home", "--create").strip())
    assert caller
    assert caller.agent is None


@pytest.mark.parametrize("named", [("--space", "home"), ("--space", "there", "--agent", "nobody")])
def test_what_is_missing_is_made_only_when_that_is_asked_for(named: tuple[str, ...]) -> None:
    spaces.ensure("there")
    with pytest.raises(CommandError, match="--create"):
        run("issue_token", *named)
    assert Space.objects.count() == 1
    assert not Agent.objects.exists()
    assert not Token.objects.exists()


def test_a_name_of_another_shape_is_refused() -> None:
    with pytest.raises(CommandError):
        run("issue_token", "--space", "No Slug!", "--create")


# --- distill ---


def test_a_dry_run_tells_windows_characters_tokens_and_cost_and_changes_nothing() -> None:
    a_session()
    said = run("distill", "--dry-run")
    assert "s1" in said
    assert "1-2" in said
    assert "Windows: 1" in said
    assert not DistillationPass.objects.exists()


def test_what_is_due_is_distilled_until_nothing_is() -> None:
    session = a_session()
    said = run("distill")
    assert "1 with memories" in said or "1 with nothing worth keeping" in said
    assert Cursor.objects.get(session=session).lag == 0
    assert "Passes: none" in run("distill")


def test_distill_names_the_sessions_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    a_session()
    begin = passes.begin

    def overtaken(*, cursor_id: int, **more: Any) -> Any:
        Cursor.objects.acquire(cursor_id, holder="a worker", seconds=60)
        return begin(cursor_id=cursor_id, **more)

    monkeypatch.setattr(passes, "begin", overtaken)
    assert "s1 waits (running): another pass reads it now\n" in run("distill")


def test_only_what_was_named_is_distilled() -> None:
    first, second = a_session("ada"), a_session("grace", name="s2")
    run("distill", "--space", "home", "--agent", "ada")
    assert [Cursor.objects.get(session=session).lag for session in (first, second)] == [0, 2]
    run("distill", "--space", "home", "--session", "s2")
    assert Cursor.objects.get(session=second).lag == 0


@pytest.mark.parametrize("named", [("--agent", "ada"), ("--space", "nowhere"), ("--session", "s1")])
def test_what_is_not_there_is_said(named: tuple[str, ...]) -> None:
    with pytest.raises(CommandError):
        run("distill", *named)


# --- doctor and health ---


def well() -> None:
    heartbeats.beat(worker="this", host="h", pid=1, processes=5)
    queue.ensure_schedules(regular.schedules())


def test_the_doctor_finds_nothing_wrong_with_what_works() -> None:
    well()
    assert "wrong" not in run("doctor")


def test_the_doctor_says_what_to_do_without_a_task_cluster_and_schedules() -> None:
    out = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("doctor", stdout=out)
    assert ended.value.code == 1
    assert "none gives a sign of life" in out.getvalue()
    assert "schedules: missing or damaged: " in out.getvalue()
    assert "coordinator" in out.getvalue()
    assert "python manage.py worker" in out.getvalue()


def test_the_doctor_names_the_variable_of_a_key_that_is_missing(settings: Settings) -> None:
    well()
    settings.AGENTMEMORY_PROVIDER_KEYS = {}
    provider = Provider.objects.create(name="acme", kind="anthropic", key_variable="AGENTMEMORY_KEY_ACME")
    Agent.objects.create(space=spaces.ensure("home"), handle="ada", provider=provider)
    out = StringIO()
    with pytest.raises(SystemExit):
        call_command("doctor", stdout=out)
    assert "Set AGENTMEMORY_KEY_ACME" in out.getvalue()


def test_d26_without_a_heartbeat_there_is_no_progress() -> None:
    assert health.progress() == health.NO_WORKER
    well()
    assert health.progress() is None
    Heartbeat.objects.update(beat_at=ClockTimestamp() - timedelta(minutes=1))
    assert health.progress() == health.NO_WORKER


def aged(session: Session, *, cadences: float, **values: object) -> None:
    since = ClockTimestamp() - timedelta(seconds=1800 * cadences)
    Cursor.objects.filter(session=session).update(due_since=since, **values)


def test_d26_due_work_that_has_not_moved_for_three_cadences_is_told() -> None:
    well()
    session = a_session()
    ticks.note("coordinator", "")
    aged(session, cadences=2.5)
    assert health.progress() is None
    aged(session, cadences=3.5)
    assert "a session has been due since" in str(health.progress())


@pytest.mark.parametrize("explained", ["backing off", "blocked", "agent paused", "moved lately"])
def test_d26_what_explains_the_wait_is_no_alarm(explained: str) -> None:
    well()
    session = a_session()
    ticks.note("coordinator", "")
    aged(session, cadences=10)
    cursor = Cursor.objects.filter(session=session)
    if explained == "backing off":
        cursor.update(next_attempt_at=ClockTimestamp() + timedelta(hours=1), failures=3)
    elif explained == "blocked":
        cursor.update(waits_for="blocked: today's budget of 5 tokens is spent")
    elif explained == "moved lately":
        cursor.update(last_success_at=ClockTimestamp())
    else:
        Agent.objects.update(status="paused")
    assert health.progress() is None


def test_d26_an_old_explanation_does_not_excuse_a_coordinator_that_went_silent() -> None:
    well()
    session = a_session()
    aged(session, cadences=10, waits_for="blocked: provider anthropic has no key")
    Tick.objects.filter(name="coordinator").update(at=ClockTimestamp() - timedelta(hours=5))
    assert "the coordinator has not looked" in str(health.progress())


def test_d26_the_oldest_turn_that_waits_is_told_with_the_reason() -> None:
    assert health.oldest_waiting() is None
    old, new = a_session(), a_session("grace", name="s2")
    aged(old, cadences=2)
    waiting = health.oldest_waiting()
    assert waiting
    assert waiting.cursor.session == old
    assert waiting.age > timedelta(minutes=59)
    assert waiting.line == health.NO_WORKER
    well()
    Cursor.objects.filter(session=old).update(waits_for="blocked: provider anthropic has no key")
    waiting = health.oldest_waiting(new.space)
    assert waiting
    assert (waiting.state, waiting.line) == ("blocked", "provider anthropic has no key")


def test_traffic_waits_for_the_cluster_that_up_starts(settings: Settings) -> None:
    assert health.ready() == []
    settings.AGENTMEMORY_WORKER_NAME = "this"
    assert health.ready() == ["the task cluster has not started yet"]
    well()
    assert health.ready() == []


# --- demo ---


def test_the_demonstration_is_made_once(settings: Settings, tmp_path: Path) -> None:
    settings.AGENTMEMORY_DATA_DIR = tmp_path
    first = demo.prepare()
    run("distill")
    counts = Message.objects.count(), Memory.objects.count(), Token.objects.count()
    assert demo.is_distilled()
    assert demo.prepare() == first
    assert demo.is_distilled()
    assert (Message.objects.count(), Memory.objects.count(), Token.objects.count()) == counts
    assert get_user_model().objects.get(username=first.login).check_password(first.password)


def test_a_password_that_a_person_changed_is_not_set_back(settings: Settings, tmp_path: Path) -> None:
    settings.AGENTMEMORY_DATA_DIR = tmp_path
    demo.prepare()
    user = get_user_model().objects.get()
    user.set_password("my own")
    user.save()
    assert demo.prepare().password == demo.CHANGED
    user.refresh_from_db()
    assert user.check_password("my own")


def test_the_demonstration_on_another_database_gets_words_that_hold_there(settings: Settings, tmp_path: Path) -> None:
    settings.AGENTMEMORY_DATA_DIR = tmp_path
    first = demo.prepare()
    Token.objects.all().delete()
    get_user_model().objects.all().delete()
    second = demo.prepare()
    assert second.token != first.token
    assert tokens.authenticate(second.token)
    assert get_user_model().objects.get().check_password(second.password)
