"""The start page, the sidebar, the groups: what spans the apps of the console."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from agentmemory.models import Memory, Provider, Session, Space
from agentmemory.services import sessions, transcripts
from config import groups, regular
from distillation.models import Cursor, DistillationPass, Quarantine
from sessions_exec import queue
from sessions_exec.models import Heartbeat, TaskRun, Tick, Webhook
from tests.factories import AgentFactory, MemoryFactory, ProviderFactory

pytestmark = pytest.mark.django_db

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(autouse=True)
def fresh_charts() -> None:
    cache.clear()


@pytest.fixture
def waiting() -> Session:
    """A finished turn that nobody has distilled yet."""
    session, _ = sessions.adopt(agent=AgentFactory.create(), name="s1")
    said = [
        transcripts.NewMessage(uid="u1", type="user", content="words"),
        transcripts.NewMessage(uid="r1", type="result", content=""),
    ]
    transcripts.append(session=session, messages=said)
    return session


def start(client: Client) -> str:
    answer = client.get(reverse("admin:index"))
    assert answer.status_code == 200
    return answer.content.decode()


def test_the_start_page_of_an_empty_installation_says_what_to_do(operator: Client) -> None:
    text = start(operator)

    assert "Nothing needs you." in text
    assert "import_transcripts" in text


def test_a_red_band_says_that_no_cluster_runs_until_one_does(operator: Client) -> None:
    assert "python manage.py worker" in start(operator)

    Heartbeat.objects.create(worker="host:1:x", host="host", pid=1)

    assert 'id="no-heartbeat"' not in start(operator)


def test_d26_the_start_page_tells_the_oldest_turn_that_waits_and_why(operator: Client, waiting: Session) -> None:
    Cursor.objects.filter(session=waiting).update(
        due_since=timezone.now() - timedelta(hours=5),
        failures=2,
        next_attempt_at=timezone.now() + timedelta(hours=1),
        last_error=HOSTILE,
    )

    text = start(operator)

    assert "5 h" in text
    assert "2nd failure" in text
    assert "1 backing off" in text
    assert HOSTILE not in text


def words(text: str, part: str) -> str:
    """What a part of a page says, without its marks."""
    found = re.search(rf'<(\w+)[^>]* id="{part}"[^>]*>(.*?)</\1>', text, re.DOTALL)
    assert found, part
    return " ".join(re.sub(r"<[^>]+>", " ", found[2]).replace("\u202f", " ").split())


def test_the_start_page_tells_what_today_took_from_whom_and_what_it_cost(operator: Client, waiting: Session) -> None:
    cursor = Cursor.objects.get(session=waiting)
    row: dict[str, Any] = {"space": cursor.space, "agent": cursor.agent, "session_name": HOSTILE, "start": 0, "end": 2}
    glm = {**row, "provider_name": "glm", "cost": "0.75"}
    DistillationPass.objects.create(**glm, epoch=1, outcome="failed", input_tokens=1200, output_tokens=34)
    DistillationPass.objects.create(**glm, epoch=2, outcome="applied", input_tokens=1000)
    DistillationPass.objects.create(**glm, epoch=3, input_tokens=5000, started_at=timezone.now() - timedelta(days=2))
    DistillationPass.objects.create(**row, epoch=4, provider_name="home", input_tokens=66)
    DistillationPass.objects.create(**row, epoch=5, outcome="failed")

    text = start(operator)

    assert words(text, "today") == "glm 2 234 tokens, US$ 1.50, 2 calls, 1 failed home 66 tokens, 1 call"
    assert words(text, "figure-tokens") == "Tokens today 2 300 US$ 1.50, no daily budget is set"
    assert HOSTILE not in text

    Space.objects.update(daily_tokens=2300)
    text = start(operator)
    assert words(text, "figure-tokens") == "Tokens today 2 300 of 2 300 US$ 1.50"
    assert 'am-alarm am-red" id="figure-tokens"' in text


def test_the_start_page_counts_what_waits_by_its_state_and_leads_to_each(operator: Client) -> None:
    later = timezone.now() + timedelta(hours=1)
    standing: dict[str, dict[str, Any]] = {
        "due": {},
        "running": {"expires_at": later, "holder": "w"},
        "backing-off": {"next_attempt_at": later},
        "blocked": {"waits_for": "blocked: provider glm paused"},
        "skipped": {"waits_for": "skipped: provider acp cannot be used for extraction"},
    }
    agent = AgentFactory.create()
    for name, values in standing.items():
        session, _ = sessions.adopt(agent=agent, name=f"is-{name}")
        end = transcripts.NewMessage(uid="r1", type="result", content="")
        transcripts.append(
            session=session, messages=[transcripts.NewMessage(uid="u1", type="user", content="words"), end]
        )
        Cursor.objects.filter(session=session).update(**values)
    cursor = Cursor.objects.get(session__name="is-due")
    row: dict[str, Any] = {"space": cursor.space, "agent": agent, "cursor": cursor, "seq": 1}
    Quarantine.objects.create(**row, uid="u1", error="it failed")

    text = start(operator)

    assert words(text, "distillation") == ("1 due 1 running 1 backing off 1 blocked 1 skipped 1 quarantined")
    assert words(text, "figure-stuck") == "Backing off and blocked 3 1 backing off, 1 blocked, 1 skipped"
    for name in standing:
        (link,) = re.findall(rf'id="distillation-{name}" href="([^"]+)"', text)
        listed = operator.get(link).content.decode()
        assert set(re.findall(r"is-[a-z-]+", listed)) == {f"is-{name}"}
    (link,) = re.findall(r'id="distillation-quarantined" href="([^"]+)"', text)
    assert "is-due" in operator.get(link).content.decode()
    (link,) = re.findall(r'id="figure-stuck" href="([^"]+)"', text)
    stuck = set(re.findall(r"is-[a-z-]+", operator.get(link).content.decode()))
    assert stuck == {"is-backing-off", "is-blocked", "is-skipped"}


def test_a4_the_start_page_asks_as_often_for_many_rows_as_for_few(operator: Client) -> None:
    def rows(count: int) -> None:
        for n in range(count):
            agent = AgentFactory.create()
            session, _ = sessions.adopt(agent=agent, name=f"s-{agent.handle}")
            said = transcripts.NewMessage(uid="u1", type="user", content="words")
            end = transcripts.NewMessage(uid="r1", type="result", content="")
            transcripts.append(session=session, messages=[said, end])
            cursor = Cursor.objects.get(session=session)
            row: dict[str, Any] = {"space": agent.space, "agent": agent, "session_name": session.name}
            DistillationPass.objects.create(**row, epoch=1, start=0, end=2, outcome="applied", provider_name=f"p{n}")
            Quarantine.objects.create(space=agent.space, agent=agent, cursor=cursor, seq=1, uid="u1")
            ProviderFactory.create(paused_until=timezone.now() + timedelta(hours=1))
            MemoryFactory.create(owner=agent)
            TaskRun.objects.create(function="f", argument=agent.handle, worker="w", pid=1)
            queue.enqueue("f", agent.handle)

    def asked() -> int:
        cache.clear()
        with CaptureQueriesContext(connection) as queries:
            start(operator)
        return len(queries)

    rows(6)
    few = asked()
    rows(20)
    assert asked() == few


def test_the_start_page_tells_whether_the_work_is_done(operator: Client) -> None:
    text = words(start(operator), "cluster")
    assert text == "silent no heartbeat 0 in the queue 0 in hand coordinator has not looked yet"

    Heartbeat.objects.create(worker="host:1:x", host="host", pid=1)
    queue.enqueue("distillation.tasks.coordinate")
    TaskRun.objects.create(function="distillation.tasks.distil_agent", argument="7", worker="host:1:x", pid=1)
    Tick.objects.create(name="coordinator", at=timezone.now() - timedelta(minutes=3))

    text = words(start(operator), "cluster")
    assert text.startswith("alive last heartbeat")
    assert "1 in the queue, the oldest for" in text
    assert "1 in hand" in text
    assert "coordinator looked 3 min ago" in text


def test_what_only_a_person_can_settle_is_listed(operator: Client) -> None:
    provider = ProviderFactory.create(name="glm")
    Provider.objects.filter(pk=provider.pk).update(
        paused_until=timezone.now() + timedelta(hours=1), paused_reason=HOSTILE
    )
    curated = MemoryFactory.create(key="port", content="8443")
    Memory.objects.create(
        space=curated.space, owner=curated.owner, origin="distilled", key="port", content="443", created_by="pass:1"
    )

    text = start(operator)

    assert "Provider glm" in text
    assert "port: the curated and the distilled memory disagree" in text
    assert HOSTILE not in text


def test_charts_have_a_table_under_them(operator: Client) -> None:
    MemoryFactory.create()

    text = start(operator)

    assert f"<td>{timezone.now():%Y-%m-%d}</td>" in text
    assert 'class="chart"' in text


def test_the_charts_show_what_the_latest_activity_shows(operator: Client, waiting: Session) -> None:
    """A pass that has just failed stood in the one and not in the other, for a minute."""
    start(operator)
    cursor = Cursor.objects.get(session=waiting)
    row: dict[str, Any] = {"space": cursor.space, "agent": cursor.agent, "session_name": "s1", "start": 0, "end": 2}
    DistillationPass.objects.create(**row, epoch=1, outcome="failed", failure="connection")

    text = start(operator)

    assert "pass" in words(text, "latest-activity")
    assert re.search(rf"<td>{timezone.now():%Y-%m-%d}</td>\s*<td[^>]*>0</td>\s*<td[^>]*>0</td>\s*<td[^>]*>1</td>", text)


def test_a_disagreement_is_as_old_as_the_newer_of_its_two(operator: Client) -> None:
    curated = MemoryFactory.create(key="port", content="8443")
    distilled = MemoryFactory.create(owner=curated.owner, origin="distilled", key="port", content="443")
    Memory.objects.filter(pk=distilled.pk).update(updated_at=timezone.now() - timedelta(minutes=6))

    told = words(start(operator), "needs-you")

    assert "disagree" in told
    assert "6 min ago" not in told


def test_nothing_on_a_page_comes_from_another_host(operator: Client, waiting: Session) -> None:
    for where in ("index", "agentmemory_memory_changelist", "distillation_cursor_changelist"):
        text = operator.get(reverse(f"admin:{where}")).content.decode()
        assert 'src="http' not in text
        assert 'rel="stylesheet" href="http' not in text


def test_the_sidebar_shows_what_its_user_may_see(client: Client, waiting: Session) -> None:
    user = User.objects.create_user("mem", is_staff=True)
    client.force_login(user)
    assert "Waiting" not in start(client)

    user.groups.add(Group.objects.get(name=groups.VIEWERS))

    text = start(client)
    assert "Waiting" in text
    assert "Users" not in text


def test_the_start_page_tells_of_costs_to_those_alone_who_may_see_them(client: Client) -> None:
    user = User.objects.create_user("mem", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_cursor"))
    client.force_login(user)
    text = start(client)
    assert 'id="distillation"' in text
    assert "Models today" not in text
    assert "Tokens today" not in text

    user.user_permissions.add(Permission.objects.get(codename="view_distillationpass"))
    text = start(client)
    assert "Models today" in text
    assert "Tokens today" in text


def test_the_groups_are_made_and_made_again_without_harm() -> None:
    groups.ensure()

    operators = Group.objects.get(name=groups.OPERATORS).permissions
    viewers = Group.objects.get(name=groups.VIEWERS).permissions
    assert operators.filter(codename="read_private_content").count() == 1
    assert not viewers.exclude(codename__startswith="view_").exists()


def test_the_queues_own_pages_are_gone_since_their_rows_are_not_for_editing() -> None:
    assert not [model for model in admin.site._registry if model._meta.app_label == "django_q"]


def test_the_task_cluster_page_shows_who_is_alive_and_what_runs(operator: Client) -> None:
    where = reverse("admin:sessions_exec_heartbeat_changelist")
    assert "python manage.py worker" in operator.get(where).content.decode()
    Heartbeat.objects.create(worker="host:1:x", host="host", pid=1, restarts=2, last_restart_reason=HOSTILE)
    TaskRun.objects.create(function="distillation.tasks.distil_agent", argument=HOSTILE, worker="host:1:x", pid=1)
    Tick.objects.create(name="coordinator", outcome=HOSTILE)
    queue.enqueue("distillation.tasks.distil_session", HOSTILE)

    text = operator.get(where).content.decode()

    assert "alive" in text
    assert "distil_agent" in text
    assert "distil_session" in text
    assert "distils the sessions of an agent" in text


def test_the_task_cluster_page_says_what_each_task_does_and_leads_to_it(operator: Client) -> None:
    session, _ = sessions.adopt(agent=AgentFactory.create(), name="s1")
    done = {
        "distillation.tasks.distil_agent": (session.agent_id, "distils the sessions of an agent"),
        "config.runs.run_session": (session.pk, "answers what was sent to a session"),
        "agentmemory.services.consolidation.daily": (None, "merges and links memories that say the same"),
        "sessions_exec.services.delivering.run": (None, "calls webhooks"),
    }
    for function, (argument, _) in done.items():
        queue.enqueue(function, argument)
    Heartbeat.objects.create(worker="w", host="h", pid=1, last_restart_at=timezone.now() - timedelta(hours=3))

    text = operator.get(reverse("admin:sessions_exec_heartbeat_changelist")).content.decode()

    for function, (_, words) in done.items():
        assert words in text
        assert f"<code>{function}</code>" in text
    assert reverse("admin:agentmemory_agent_change", args=[session.agent_id]) in text
    assert reverse("admin:agentmemory_session_change", args=[session.pk]) in text
    assert "3 h ago" in text
    assert HOSTILE not in text


@pytest.mark.parametrize("name", ["auth_user_changelist", "auth_group_changelist", "auth_user_add"])
def test_accounts_have_their_pages(operator: Client, name: str) -> None:
    assert operator.get(reverse(f"admin:{name}")).status_code == 200


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("distillation_cursor", "Waiting"),
        ("distillation_distillationpass", "Passes"),
        ("distillation_quarantine", "Quarantine"),
        ("sessions_exec_execution", "Live executions"),
        ("sessions_exec_input", "Inputs that wait"),
        ("sessions_exec_recovery", "Recoveries"),
        ("sessions_exec_heartbeat", "Task cluster"),
        ("agentmemory_activity", "Activity"),
        ("agentmemory_provider", "Providers"),
    ],
)
def test_a_list_is_headed_by_its_word_in_the_sidebar(operator: Client, name: str, word: str) -> None:
    text = operator.get(reverse(f"admin:{name}_changelist")).content.decode()

    assert f"{word} | Agent Memory" in " ".join(text.split())
    assert "to change" not in text


def test_the_schedules_are_shown_with_their_times_and_a_missing_one_is_told(operator: Client) -> None:
    page = reverse("admin:sessions_exec_tick_changelist")
    assert operator.get(page).content.decode().count("a running worker makes it") == len(regular.schedules())
    queue.ensure_schedules(regular.schedules())
    Tick.objects.filter(name="upkeep").update(outcome=HOSTILE)
    text = operator.get(page).content.decode()
    assert "a running worker makes it" not in text
    assert HOSTILE not in text
    told = {each.name: each.what for each in regular.schedules()} | {each.name: each.what for each in regular.ticks()}
    for name, what in told.items():
        assert f"<strong>{name}</strong>" in text
        assert what
        assert what in text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("agentmemory_provider_change", ["Set-up", "Providers", "glm"]),
        ("agentmemory_provider_changelist", ["Set-up", "Providers"]),
        ("agentmemory_certificate_find", ["System", "Purges", "Find everything, and purge"]),
        ("agentmemory_memory_compare", ["Memory", "Compare"]),
        ("index", ["Start"]),
    ],
)
def test_the_head_of_a_page_says_where_it_is_in_the_sidebars_words(
    operator: Client, name: str, words: list[str]
) -> None:
    provider = ProviderFactory.create(name="glm")
    text = operator.get(
        reverse(f"admin:{name}", args=[provider.pk] if name.endswith("_change") else [])
    ).content.decode()

    head = text[text.index('id="where"') : text.index("</h1>")]
    assert re.findall(r'truncate tracking-tight">([^<]+)<', head) == words


def test_what_an_operator_settles_needs_nobody_any_more(operator: Client) -> None:
    curated = MemoryFactory.create(key="port", content="8443")
    distilled = MemoryFactory.create(owner=curated.owner, origin="distilled", key="port", content="443")
    assert "disagree" in start(operator)

    both = reverse("admin:agentmemory_memory_act", args=["both"])
    operator.post(f"{both}?ids={distilled.pk}", {"reason": "they are of two systems"})

    assert "disagree" not in start(operator)


def test_the_start_page_names_who_answers_no_more(operator: Client, waiting: Session) -> None:
    """A provider, a webhook, and a session that nothing pauses: each next try is hours away, and nobody would look."""
    cursor = Cursor.objects.get(session=waiting)
    provider = ProviderFactory.create(name="glm", key_variable="")
    row: dict[str, Any] = {"space": cursor.space, "agent": cursor.agent, "session_name": "s1", "start": 0, "end": 2}
    broken = {"provider": provider, "outcome": "failed", "failure": "connection", "error": HOSTILE}
    for epoch in (1, 2):
        DistillationPass.objects.create(**row, **broken, epoch=epoch)
    hook = Webhook.objects.create(space=cursor.space, name="ops", url="https://a.example", salt="s", failures=2)
    later = timezone.now() + timedelta(hours=3)
    Cursor.objects.filter(pk=cursor.pk).update(failures=2, next_attempt_at=later, last_error=HOSTILE)
    assert words(start(operator), "needs-you").endswith("Nothing needs you.")

    cache.clear()
    DistillationPass.objects.create(**row, **broken, epoch=3)
    Webhook.objects.filter(pk=hook.pk).update(failures=3)
    Cursor.objects.filter(pk=cursor.pk).update(failures=3)

    text = start(operator)
    told = words(text, "needs-you")
    assert "failing Provider glm: its last 3 calls failed, none got through in a day: " in told
    assert "backing off s1 failed 3 times in a row: " in told
    assert f"failing Webhook ops of {cursor.space.slug}: its last 3 calls failed" in told
    assert HOSTILE not in text

    listed = operator.get(reverse("admin:agentmemory_provider_changelist")).content.decode()
    assert "its last 3 calls failed" in listed
    own = operator.get(reverse("admin:agentmemory_provider_change", args=[provider.pk])).content.decode()
    assert words(own, "in-a-row").startswith("failing its last 3 calls failed")
