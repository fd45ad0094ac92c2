"""The operators' pages of distillation: what waits and why, what each pass was shown and made of it."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings

from agentmemory.console import figures
from agentmemory.models import Activity, Agent, Memory, Provider, Space
from agentmemory.services import providers
from distillation.admin import cost as cost_page
from distillation.models import Cursor, DistillationPass, Quarantine
from distillation.services import distilling, preview, reading
from sessions_exec.services import heartbeats
from tests.distillation.conftest import Tell, cursor_of
from tests.factories import AgentFactory, MemoryFactory
from tests.support import model_server
from tests.support.model_server import ModelServer

pytestmark = pytest.mark.django_db

HOSTILE = "<script>alert(1)</script>"
TOLD = "Remember: the staging system listens on port 8443."


def page(name: str, *args: Any) -> str:
    return reverse(f"admin:distillation_{name}", args=args)


def act(name: str, *cursors: Cursor) -> str:
    return page("cursor_act", name) + "?ids=" + ",".join(str(cursor.pk) for cursor in cursors)


def failed(cursor: Cursor) -> DistillationPass:
    """A cursor that backs off after an error full of markup, and the pass that failed."""
    Cursor.objects.filter(pk=cursor.pk).update(
        failures=3, next_attempt_at=timezone.now() + timedelta(hours=2), last_error=f"{HOSTILE}\nmore of it"
    )
    return DistillationPass.objects.create(
        space=cursor.space,
        agent=cursor.agent,
        cursor=cursor,
        session=cursor.session,
        session_name=cursor.session.name,
        epoch=999,
        start=0,
        end=2,
        shown=[1],
        outcome="failed",
        failure="malformed",
        error=HOSTILE,
        answer=f"no JSON {HOSTILE}",
        refused=[{"key": HOSTILE, "reason": HOSTILE}],
    )


def test_what_waits_is_listed_with_its_state_and_reason(operator: Client, tell: Tell) -> None:
    tell(TOLD, name="waits")
    failed(cursor_of(tell(TOLD, name="fails")))
    blocked = cursor_of(tell(TOLD, name="blocked"))
    Cursor.objects.filter(pk=blocked.pk).update(waits_for="blocked: provider glm paused")

    text = operator.get(page("cursor_changelist")).content.decode()

    for words in ("backing off", "3rd failure", "blocked", "provider glm paused", "due", "0 of 2", "Run now"):
        assert words in text
    assert HOSTILE not in text


@pytest.mark.parametrize(
    ("waiting", "shown"),
    [("backing_off", {"fails"}), ("behind", {"waits", "fails"}), ("idle", set()), ("running", set())],
)
def test_what_waits_is_filtered(operator: Client, tell: Tell, waiting: str, shown: set[str]) -> None:
    tell(TOLD, name="waits")
    failed(cursor_of(tell(TOLD, name="fails")))

    text = operator.get(page("cursor_changelist"), {"waiting": waiting}).content.decode()

    assert {name for name in ("waits", "fails") if f">{name}<" in text} == shown


def test_a_list_asks_no_query_for_each_row(operator: Client, tell: Tell) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as found:
            for model in ("cursor", "distillationpass", "quarantine"):
                assert operator.get(page(f"{model}_changelist")).status_code == 200
        return len(found)

    def fill(count: int, start: int) -> None:
        for n in range(start, start + count):
            cursor = cursor_of(tell(TOLD, name=f"s{n}"))
            failed(cursor)
            Quarantine.objects.create(
                space=cursor.space, agent=cursor.agent, cursor=cursor, uid="u1", seq=1, failures=3, error=HOSTILE
            )

    fill(2, 0)
    few = queries()
    fill(8, 2)
    assert queries() == few


def test_d24_run_now_is_asked_with_a_reason_and_done_by_the_service(operator: Client, tell: Tell) -> None:
    cursor = cursor_of(tell(TOLD))

    assert operator.get(act("run-now", cursor)).status_code == 200
    assert operator.post(act("run-now", cursor), {"reason": ""}).status_code == 422
    cursor.refresh_from_db()
    assert cursor.requested_at is None

    assert operator.post(act("run-now", cursor), {"reason": "I want to see it"}).status_code == 302
    cursor.refresh_from_db()
    assert cursor.requested_at is not None or cursor.enqueued_at is not None


def test_d24_run_now_says_when_it_is_taken_up_and_so_do_the_page_and_the_list(operator: Client, tell: Tell) -> None:
    cursor = cursor_of(tell(TOLD))
    heartbeats.beat(worker="this", host="h", pid=1, processes=1)

    told = operator.post(act("run-now", cursor), {"reason": "I want to see it"}, follow=True).content.decode()

    assert "s1 is asked for: taken up within seconds." in told
    assert ">asked for: taken up within seconds<" in told
    assert ">asked for: taken up within seconds<" in operator.get(page("cursor_changelist")).content.decode()


def test_run_now_is_not_offered_where_nothing_waits(operator: Client, tell: Tell) -> None:
    cursor = cursor_of(tell(TOLD))
    assert "act-run-now" in operator.get(page("cursor_change", cursor.pk)).content.decode()

    Cursor.objects.update(position=2)

    assert "act-run-now" not in operator.get(page("cursor_change", cursor.pk)).content.decode()
    told = operator.post(act("run-now", cursor), {"reason": "x"}, follow=True).content.decode()
    assert "nothing was done" in told
    assert Cursor.objects.get().requested_at is None


def test_a_lease_that_is_over_reads_so(operator: Client, tell: Tell) -> None:
    cursor = cursor_of(tell(TOLD))
    now = timezone.now()
    for at, words in ((now + timedelta(minutes=2), "ends <time"), (now - timedelta(seconds=52), "ended <time")):
        Cursor.objects.update(holder="host:1", expires_at=at)
        assert f"epoch 0, {words}" in operator.get(page("cursor_change", cursor.pk)).content.decode()


def test_d24_clearing_the_backoff_makes_it_due(operator: Client, tell: Tell) -> None:
    cursor = cursor_of(tell(TOLD))
    failed(cursor)

    operator.post(act("clear-backoff", cursor), {"reason": "the provider is well again"})

    cursor.refresh_from_db()
    assert (cursor.failures, cursor.next_attempt_at) == (0, None)


def test_one_cursor_shows_its_passes_and_its_last_error(operator: Client, tell: Tell) -> None:
    cursor = cursor_of(tell(TOLD))
    row = failed(cursor)

    text = operator.get(page("cursor_change", cursor.pk)).content.decode()

    assert page("distillationpass_change", row.pk) in text
    assert "more of it" in text
    assert HOSTILE not in text
    assert operator.get(page("cursor_change", 0)).status_code == 404


def test_a_pass_shows_its_window_its_prompt_and_what_became_of_it(operator: Client, tell: Tell) -> None:
    tell(TOLD, f"Please always {HOSTILE} run the tests before a commit.")
    distilling.run_due()
    row = DistillationPass.objects.get(outcome="applied")

    text = operator.get(page("distillationpass_change", row.pk)).content.decode()

    assert "port 8443" in text
    assert "what was shown" in text.lower()
    assert f"messages {row.start + 1} to {row.end}" in text
    assert reverse("admin:agentmemory_memory_change", args=[row.written[0]["memory"]]) in text
    assert HOSTILE not in text


def test_d7_a_failed_pass_shows_its_answer_as_it_came(operator: Client, tell: Tell) -> None:
    row = failed(cursor_of(tell(TOLD)))

    listed = operator.get(page("distillationpass_changelist"), {"outcome__exact": "failed"}).content.decode()
    text = operator.get(page("distillationpass_change", row.pk)).content.decode()

    assert "no JSON object" in text
    assert "malformed" in text
    assert HOSTILE not in text + listed


def test_a_pass_whose_session_is_gone_is_still_shown(operator: Client, tell: Tell) -> None:
    row = failed(cursor_of(tell(TOLD)))
    DistillationPass.objects.filter(pk=row.pk).update(session=None, cursor=None)

    assert "the window with it" in operator.get(page("distillationpass_change", row.pk)).content.decode()


def test_a_conversation_says_how_far_it_is_distilled(operator: Client, tell: Tell) -> None:
    session = tell(TOLD)
    distilling.run_due()

    text = operator.get(reverse("admin:agentmemory_session_change", args=[session.pk])).content.decode()

    assert "distilled to here" in text
    assert "distilled to the last finished turn" in text


def test_a_viewer_sees_figures_and_no_content(viewer: Client, tell: Tell) -> None:
    cursor = cursor_of(tell(TOLD))
    row = failed(cursor)

    text = viewer.get(page("distillationpass_change", row.pk)).content.decode()
    listed = viewer.get(page("cursor_changelist")).content.decode()

    assert "8443" not in text
    assert "no JSON" not in text
    assert "Run now" not in listed
    assert viewer.post(act("run-now", cursor), {"reason": "x"}).status_code == 403


def test_a_message_in_quarantine_leads_to_its_conversation(operator: Client, tell: Tell, agent: Agent) -> None:
    cursor = cursor_of(tell(TOLD))
    held = Quarantine.objects.create(
        space=cursor.space, agent=agent, cursor=cursor, uid="u1", seq=1, failures=3, error=HOSTILE
    )

    text = operator.get(page("quarantine_change", held.pk)).content.decode()

    assert "at=1#m1" in text
    assert "quarantined" in text
    assert HOSTILE not in text


@pytest.mark.parametrize(("name", "state"), [("release", "released"), ("dismiss", "dismissed")])
def test_d20_a_quarantine_is_decided_with_a_reason(operator: Client, tell: Tell, name: str, state: str) -> None:
    cursor = cursor_of(tell(TOLD))
    held = Quarantine.objects.create(
        space=cursor.space, agent=cursor.agent, cursor=cursor, uid="u1", seq=1, failures=3, error="refused"
    )
    where = page("quarantine_act", name) + f"?ids={held.pk}"

    assert "message 1" in operator.get(where).content.decode()
    operator.post(where, {"reason": "I looked at it"})

    held.refresh_from_db()
    assert (held.state, held.decided_by) == (state, "operator:olga")


def test_d24_a_session_is_distilled_again_from_a_message(operator: Client, tell: Tell) -> None:
    cursor = cursor_of(tell(TOLD, TOLD))
    distilling.run_due()

    assert operator.post(act("distil-again", cursor), {"reason": "the prompt is better"}).status_code == 422
    operator.post(act("distil-again", cursor), {"seq": "2", "reason": "the prompt is better"})

    cursor.refresh_from_db()
    assert cursor.position == 1


def test_d24_a_place_that_cannot_be_is_told(operator: Client, tell: Tell) -> None:
    cursor = cursor_of(tell(TOLD))

    told = operator.post(act("skip", cursor), {"seq": "99", "reason": "why not"}, follow=True)

    assert "can be skipped to" in told.content.decode()


def test_d24_a_lease_is_taken_back(operator: Client, tell: Tell) -> None:
    cursor = cursor_of(tell(TOLD))
    epoch = Cursor.objects.acquire(cursor.pk, holder="gone", seconds=300)

    operator.post(act("release-lease", cursor), {"reason": "its machine is gone"})

    cursor.refresh_from_db()
    assert (cursor.holder, cursor.epoch) == ("", epoch + 1)


def test_d25_what_it_costs_is_told_by_day_and_agent(operator: Client, tell: Tell) -> None:
    row = failed(cursor_of(tell(TOLD)))
    DistillationPass.objects.filter(pk=row.pk).update(
        provider_name="glm", input_tokens=1200, output_tokens=34, cost="0.5"
    )

    text = operator.get(reverse("admin:distillation_cost")).content.decode()
    table = operator.get(reverse("admin:distillation_cost_csv")).content.decode()

    assert "1\u202f234" in text
    assert "0.50" in text
    assert f"{row.started_at:%Y-%m-%d},acme,ada,glm,1,1,1200,34,0.500000" in table


def test_where_a_months_money_went_is_told_by_space_agent_and_provider(operator: Client, tell: Tell) -> None:
    row = failed(cursor_of(tell(TOLD)))
    hopper = AgentFactory.create(handle="hopper", space=row.space)
    same: dict[str, Any] = {"space": row.space, "agent": row.agent, "session_name": "s1", "start": 0, "end": 2}
    for agent, provider, cost, tokens in (
        (row.agent, "glm", "3", 10),
        (hopper, "glm", "1", 900),
        (hopper, "home", None, 5),
    ):
        DistillationPass.objects.create(
            **{**same, "agent": agent}, epoch=9, provider_name=provider, cost=cost, input_tokens=tokens
        )
    Space.objects.update(daily_tokens=1000)

    text = operator.get(reverse("admin:distillation_cost")).content.decode()

    assert told(text, "by-agent") == [["ada · acme75 %", "10", "US$ 3.00"], ["hopper · acme25 %", "905", "US$ 1.00"]]
    assert told(text, "by-provider") == [["glm100 %", "910", "US$ 4.00"], ["home0 %", "5", figures.NONE]]
    assert told(text, "by-space") == [["acme100 %", "915", "US$ 4.00"]]
    assert "915 of 1\u202f000" in text
    (link,) = re.findall(r'href="([^"]+)">hopper · acme', text)
    assert "2 passes" in operator.get(html.unescape(link)).content.decode()


def test_the_cost_page_says_that_there_are_more_budgets_than_it_shows(
    operator: Client, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(TOLD)
    where = reverse("admin:distillation_cost")
    assert "The first spaces alone" not in operator.get(where).content.decode()
    monkeypatch.setattr(cost_page, "SPACES_SHOWN", 0)
    assert "The first spaces alone" in operator.get(where).content.decode()


def told(text: str, part: str) -> list[list[str]]:
    """The rows of a part's table."""
    table = re.search(rf'id="{part}".*?<tbody>(.*?)</tbody>', text, re.DOTALL)
    assert table, part
    rows = re.findall(r"<tr>(.*?)</tr>", table[1], re.DOTALL)
    cells = [[re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)] for row in rows]
    return [[html.unescape(cell).replace("\u202f", " ").strip() for cell in row] for row in cells]


def provider_act(name: str, provider: Provider) -> str:
    return reverse("admin:agentmemory_provider_act", args=[name]) + f"?ids={provider.pk}"


def test_d24_a_provider_is_paused_and_resumed_with_a_reason(operator: Client, server: ModelServer) -> None:
    provider = providers.ensure("anthropic")
    where = reverse("admin:agentmemory_provider_change", args=[provider.pk])

    assert operator.post(provider_act("pause", provider), {"reason": ""}).status_code == 422
    operator.post(provider_act("pause", provider), {"reason": HOSTILE})

    text = operator.get(where).content.decode()
    assert " by olga: " in text
    assert "key present" in text
    assert 'id="act-resume"' in text
    assert HOSTILE not in text
    assert "paused by olga" in operator.get(reverse("admin:index")).content.decode()

    operator.post(provider_act("resume", provider), {"reason": "it is well"})
    provider.refresh_from_db()
    assert provider.stopped_at is None


def test_a_provider_is_tried_and_shows_what_came_back(operator: Client, server: ModelServer) -> None:
    provider = providers.ensure("anthropic")
    server.script(model_server.raw_text(f"ready {HOSTILE}"), model_server.status(529, words=HOSTILE))

    told = operator.post(provider_act("test", provider), {"reason": "is it there"}, follow=True).content.decode()
    assert "anthropic answered in" in told
    assert "100 tokens in, 20 out" in told
    assert "ready" in told

    told += operator.post(provider_act("test", provider), {"reason": "again"}, follow=True).content.decode()
    assert "HTTP 529" in told
    assert HOSTILE not in told


def test_from_an_error_to_its_cure_in_links(operator: Client, server: ModelServer, tell: Tell) -> None:
    """The pass leads to its provider, the provider to all sessions that wait after its failures, and to their end."""
    server.script(*[model_server.status(500)] * 2)
    rows = [cursor_of(tell(TOLD, name=name)) for name in ("s1", "s2")]
    for row in rows:
        distilling.run_pass(cursor_id=row.pk)
    other = cursor_of(tell(TOLD, name="s3"))
    Cursor.objects.filter(pk=other.pk).update(failures=1, next_attempt_at=timezone.now() + timedelta(hours=1))
    provider = providers.ensure("anthropic")
    where = reverse("admin:agentmemory_provider_change", args=[provider.pk])
    agent = reverse("admin:agentmemory_agent_change", args=[rows[0].agent_id])

    told = operator.get(page("distillationpass_change", DistillationPass.objects.earliest("pk").pk)).content.decode()
    assert f'href="{where}"' in told
    assert f'href="{agent}"' in told
    assert f'href="{where}"' in operator.get(page("cursor_change", rows[0].pk)).content.decode()

    told = operator.get(where).content.decode()
    listed = html.unescape(re.findall(r'id="backing-off"><a class="am-link" href="([^"]+)">2 back off<', told)[0])
    waiting = operator.get(listed).content.decode()
    assert "s1" in waiting
    assert "s3" not in waiting
    clear = html.unescape(re.findall(r'id="clear-backoff" href="([^"]+)">Clear backoff of 2 sessions<', told)[0])
    assert "sessions that back off" in operator.get(clear).content.decode()
    operator.post(clear, {"reason": "it is well again"})

    assert list(Cursor.objects.filter(failures=0, requested_at__isnull=False).order_by("pk")) == rows
    other.refresh_from_db()
    assert other.failures == 1
    act = Activity.objects.get(act="clear backoff")
    assert (act.target, act.reason, act.detail) == ("anthropic", "it is well again", {"sessions": 2})
    assert 'id="clear-backoff"' not in operator.get(where).content.decode()


def test_a_viewer_clears_no_backoff(viewer: Client, server: ModelServer, tell: Tell) -> None:
    server.script(model_server.status(500))
    distilling.run_pass(cursor_id=cursor_of(tell(TOLD)).pk)
    provider = providers.ensure("anthropic")
    told = viewer.get(reverse("admin:agentmemory_provider_change", args=[provider.pk])).content.decode()
    assert "1 backs off" in told
    assert 'id="clear-backoff"' not in told
    assert viewer.post(provider_act("clear-backoff", provider), {"reason": "x"}).status_code == 403


def test_a_viewer_tries_no_provider(viewer: Client, server: ModelServer) -> None:
    provider = providers.ensure("anthropic")

    assert viewer.post(provider_act("test", provider), {"reason": "x"}).status_code == 403
    assert server.requests == []


def test_d25_applying_a_pass_again_shows_a_diff_before_it_does_anything(
    operator: Client, server: ModelServer, tell: Tell
) -> None:
    cursor = cursor_of(tell("The port is 8080.", HOSTILE))
    distilling.run_cursor(cursor_id=cursor.pk)
    row = DistillationPass.objects.get()
    memory = Memory.objects.get(content="The port is 8080.")
    Memory.objects.filter(pk=memory.pk).update(content="The port is 9090.", version=2)
    where = page("distillationpass_act", "apply-again") + f"?ids={row.pk}"
    assert 'id="act-apply-again"' in operator.get(page("distillationpass_change", row.pk)).content.decode()

    asked = operator.get(where).content.decode()
    assert "<del>9090</del><ins>8080</ins>" in asked
    assert "it was written again since this pass" in asked
    assert HOSTILE not in asked
    assert operator.post(where, {"reason": ""}).status_code == 422
    memory.refresh_from_db()
    assert memory.content == "The port is 9090."

    told = operator.post(where, {"reason": "the later one was wrong"}, follow=True).content.decode()
    memory.refresh_from_db()
    assert memory.content == "The port is 8080."
    assert "1 known, 1 updated" in told


def test_d24_who_may_not_read_private_content_sees_what_would_happen_without_it(
    client: Client, server: ModelServer, tell: Tell
) -> None:
    user = User.objects.create_user("otto", is_staff=True)
    user.user_permissions.add(
        *Permission.objects.filter(codename__in=["view_distillationpass", "change_distillationpass"])
    )
    client.force_login(user)
    distilling.run_cursor(cursor_id=cursor_of(tell("The port is 8080.")).pk)
    row = DistillationPass.objects.get()

    text = client.get(page("distillationpass_act", "apply-again") + f"?ids={row.pk}").content.decode()

    assert "1 known" in text
    assert "8080." not in text


def test_d24_distilling_again_shows_what_it_brought_and_withdraws_what_it_did_not_confirm(
    operator: Client, server: ModelServer, tell: Tell
) -> None:
    def item(key: str, content: str, seq: int) -> dict[str, Any]:
        return {"key": key, "content": content, "sources": [seq]}

    cursor = cursor_of(tell("The port is 8080.", "Deploys are on Tuesday.", "It rains."))
    first = [
        item("port", "The port is 8080.", 1),
        item("deploys", "Deploys are on Tuesday.", 2),
        item("rain", "Wet.", 3),
    ]
    server.script(model_server.memories(first))
    distilling.run_cursor(cursor_id=cursor.pk)
    operator.post(act("distil-again", cursor), {"seq": "1", "reason": "the prompt is better"})
    waiting = operator.get(page("cursor_change", cursor.pk)).content.decode()
    assert "Done up to message 0 of 4" in waiting

    again = [
        item("port", "The port is 8443.", 1),
        item("deploys", "Deploys are on Tuesday.", 2),
        item("team", "Six.", 3),
    ]
    server.script(model_server.memories(again))
    distilling.run_cursor(cursor_id=cursor.pk)
    distilling.run_cursor(cursor_id=cursor_of(tell("What is new is no part of it.")).pk)

    text = operator.get(page("cursor_change", cursor.pk)).content.decode()
    report = text[text.index('id="again"') : text.index('id="passes"')]
    assert "All of it is done, up to message 4" in report
    assert "<del>8080</del><ins>8443</ins>" in report
    assert "what-is-new" not in report
    rain = Memory.objects.get(key="rain")
    found = re.search(r'id="withdraw" href="([^"]+)"', report)
    assert found is not None
    assert str(rain.pk) in found[1]

    told = operator.post(html.unescape(found[1]), {"reason": "it is not so"}, follow=True)
    assert "none" in re.search(r'id="not-confirmed">(.*?)</dd>', told.content.decode(), re.DOTALL)[1]  # type: ignore[index]
    rain.refresh_from_db()
    assert rain.withdrawn_by == "operator:olga"


def test_a_dry_run_is_a_page_with_windows_tokens_and_cost(operator: Client, server: ModelServer, tell: Tell) -> None:
    provider = providers.ensure("anthropic")
    Provider.objects.filter(pk=provider.pk).update(price_in="1", price_out="5")
    tell(TOLD, name="waits")
    tell(TOLD, name="waits-too")
    failed(cursor_of(tell(TOLD, name="fails")))
    where = reverse("admin:distillation_estimate")
    assert where in operator.get(page("cursor_changelist")).content.decode()

    text = operator.get(where).content.decode()
    narrow = operator.get(where, {"session": "waits", "agent": "ada"}).content.decode()

    assert "2 sessions" in text
    assert ">fails<" not in text
    assert "US$" in text
    assert ">waits-too<" not in narrow
    assert "1 session<" in narrow
    assert server.requests == []
    assert operator.get(where, {"space": "nobody"}).content.decode().count("Nothing is due.") == 1


def test_a_dry_run_says_where_it_ends(
    operator: Client, tell: Tell, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setattr(preview, "WINDOWS_LOOKED_AT", 1)
    settings.AGENTMEMORY_MESSAGES_PER_PASS = 1
    tell(TOLD, TOLD)

    assert "more than 1" in operator.get(reverse("admin:distillation_estimate")).content.decode()


def test_a_dry_run_lets_the_newest_memories_stand_in_for_what_a_search_would_find(
    operator: Client, agent: Agent, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second"):
        tell(TOLD, name=name)
    monkeypatch.setattr(reading, "known_for", Mock(side_effect=AssertionError("nothing is searched for")))
    exact = operator.get(reverse("admin:distillation_estimate")).content.decode()
    MemoryFactory.create(owner=agent, origin="distilled", key="known", content="Known already.")

    text = operator.get(reverse("admin:distillation_estimate")).content.decode()

    assert "2 sessions" in text
    assert "≈ " in text
    assert "≈ " not in exact
