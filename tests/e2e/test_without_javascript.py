"""The console in a browser that runs no scripts: all of it is there to be seen and used, but for the charts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.urls import reverse
from django.utils import timezone

from agentmemory.admin import sessions
from agentmemory.admin.base import ConsoleAdmin
from agentmemory.callers import Caller
from agentmemory.models import Agent, Certificate, Memory, MessageIndex, Provider, Session, Space, Token
from agentmemory.services import indexing, memories
from config import groups, navigation
from distillation.models import Cursor, Quarantine
from sessions_exec.models import Input, Recovery, Webhook
from tests.e2e.test_everybody import of, pages
from tests.support import browsers, running, sight
from tests.support.filled import fill

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.e2e,
    pytest.mark.slow,
    # Static files are read whole, as the product's own server has them (see `config.asgi`).
    pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume synchronous iterators"),
]

PASSWORD, NEXT = "a-password-of-tests", "another-one-of-tests"
WHY = "a person asked for it"


@dataclass(kw_only=True)
class Console:
    """An operator before a page of the console, in a browser without scripts."""

    page: Page
    context: BrowserContext
    address: str

    def open(self, path: str) -> None:
        answer = self.page.goto(self.address + path)
        assert answer is not None
        assert answer.status == 200, path

    def listed(self, name: str) -> None:
        self.open(reverse(f"admin:{name}_changelist"))

    def text(self, where: str = "#content") -> str:
        return self.page.inner_text(where)

    def act(self, name: str) -> str:
        """An act's button, its page, why, and what it says that it did."""
        self.page.click(f"#act-{name}")
        return self.answer()

    def answer(self) -> str:
        self.page.fill("#act-form input[name=reason]", WHY)
        self.page.click("#act-form button[type=submit]")
        assert not self.page.locator("#act-form").count(), self.text()
        return self.text("#main")

    def undo(self) -> str:
        self.page.get_by_role("link", name="Undo").click()
        return self.answer()

    def bulk(self, key: str, act: str) -> str:
        """Tick a row of a list, choose an act, run it."""
        self.page.locator("tr.data-row", has_text=key).locator("input.action-select").check()
        self.page.select_option("#changelist-actions-wrapper select[name=action]", label=act)
        self.page.locator("#changelist-actions-wrapper button[name=index]").click()
        return self.answer()

    def save(self, **fields: str) -> None:
        """Fill in the form of a page, and save it with a reason."""
        for name, value in {**fields, "reason": WHY}.items():
            self.page.fill(f"#content [name={name}]", value)
        self.page.locator("button[name=_save], #content form button[type=submit]").last.click()


@pytest.fixture
def console(browser: Browser, address: str, db: None) -> Iterator[Console]:
    cache.clear()
    groups.ensure()
    fill()
    User.objects.create_superuser("ada", password=PASSWORD)
    context = browser.new_context(viewport={"width": 1280, "height": 900}, java_script_enabled=False)
    page = context.new_page()
    watched = browsers.Watched()
    watched.watch(page)
    yield Console(page=page, context=context, address=address)
    context.close()
    assert watched.errors == []
    assert watched.hosts <= {urlsplit(address).netloc}


@pytest.fixture
def signed_in(console: Console) -> Console:
    browsers.sign_in(console.context, User.objects.get(username="ada"), address=console.address)
    return console


def everywhere() -> list[str]:
    """One of each kind of page, what the sidebar leads to, and the forms behind it."""
    lists = [reverse(f"admin:{item.route}{item.page}") for _, items in navigation.GROUPS for item in items]
    forms = [f"{app}_add" for app in ("agentmemory_provider", "agentmemory_space", "agentmemory_agent", "auth_user")]
    others = ["auth_group_add", "agentmemory_consolidation_dry_run", "search", "password_change"]
    others += ["distillation_estimate", "sessions_exec_delivery_changelist"]
    named = [reverse(f"admin:{name}") for name in (*forms, *others)]
    return list(dict.fromkeys([*pages(), *lists, *named, of(Agent), of(Space), of(Token), of(Webhook), of(Input)]))


def test_all_that_a_page_offers_is_in_sight_and_leads_somewhere(signed_in: Console) -> None:
    Provider.objects.get_or_create(name="glm", defaults={"kind": "anthropic"})
    first, *others = everywhere()
    signed_in.open(first)
    wrong = sight.wrong(signed_in.page)
    for place in others:
        # The sidebar is the same on each.
        signed_in.open(place)
        wrong += sight.wrong(signed_in.page, "#main")
    assert wrong == []


def test_one_signs_in_goes_anywhere_from_the_sidebar_changes_the_password_and_signs_out(console: Console) -> None:
    page = console.page
    console.open(reverse("admin:login"))
    assert sight.wrong(page) == []
    sign_in(page, PASSWORD)
    charts = page.locator("section[id^=chart-]").all()
    for chart in charts:
        chart.locator("summary").click()
        assert chart.locator("tbody td").first.is_visible(), "its numbers are there as a table"
    assert len(charts) == 2
    for _, items in navigation.GROUPS:
        page.click(f"#nav-sidebar-apps >> text='{items[-1].title}'")
        assert items[-1].title in console.text("#where")
    page.fill("#nav-search", "k1")
    page.press("#nav-search", "Enter")
    assert "k1" in console.text("#found-agentmemory_memory")
    page.click("#nav-sidebar >> text=Change password")
    for name, value in {"old_password": PASSWORD, "new_password1": NEXT, "new_password2": NEXT}.items():
        page.fill(f"[name={name}]", value)
    page.locator("#content button[type=submit], button[form]").last.click()
    page.click("#nav-sidebar >> text=Log out")
    console.open(reverse("admin:login"))
    sign_in(page, NEXT)


def sign_in(page: Page, password: str) -> None:
    page.fill("[name=username]", "ada")
    page.fill("[name=password]", password)
    page.click("#login-form button[type=submit]")
    page.wait_for_selector("#start")


def test_a_list_is_searched_filtered_sorted_turned_over_and_acted_on(
    signed_in: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ConsoleAdmin, "list_per_page", 2)
    page = signed_in.page
    signed_in.listed("agentmemory_memory")
    first = signed_in.text("#result_list")
    page.click("#page-next")
    assert signed_in.text("#result_list") != first
    page.click("#tabs-items >> text=Distilled")
    assert "curated" not in signed_in.text("#result_list")
    page.click("#tabs-items >> text=All")
    page.fill("#searchbar", "Statement 1")
    page.press("#searchbar", "Enter")
    assert "k1" in signed_in.text("#result_list")
    assert "k0" not in signed_in.text("#result_list")
    signed_in.listed("agentmemory_memory")
    page.fill("#filter-form [name=tag]", "a")
    page.get_by_role("button", name="Apply Filters").click()
    assert page.locator("tr.data-row").count() == 2
    page.click("#changelist-filter >> text=Clear all filters")
    signed_in.open(reverse("admin:agentmemory_memory_changelist") + "?q=Statement")
    assert "withdrawn" in signed_in.bulk("k1", "Withdraw").lower()
    assert Memory.objects.get(key="k1").withdrawn_at is not None
    signed_in.undo()
    assert Memory.objects.get(key="k1").withdrawn_at is None
    page.set_viewport_size({"width": 768, "height": 900})
    signed_in.listed("agentmemory_agent")
    signed_in.bulk("ada", "Pause")
    assert Agent.objects.get(handle="ada").status == "paused"


def test_a_memory_is_tried_withdrawn_brought_back_edited_and_restored(signed_in: Console) -> None:
    page = signed_in.page
    memory = Memory.objects.get(key="k0")
    agent = Agent.objects.get(handle="ada")
    memories.put(
        caller=Caller(space=agent.space, agent=agent), draft=memories.Draft(key="k0", content="Another statement.")
    )
    indexing.fill(MessageIndex.objects.all())
    signed_in.open(reverse("admin:agentmemory_memory_change", args=[memory.pk]))
    page.fill("#found-by-q", "another")
    page.click("#found-by button")
    assert "Rank 1" in signed_in.text("#found-by")
    signed_in.act("withdraw")
    assert "Withdrawn" in signed_in.text("#memory")
    signed_in.undo()
    assert "Withdrawn" not in signed_in.text("#memory")
    page.click("#act-edit")
    page.fill("[name=expires_at]", "2031-01-31 12:00")
    signed_in.answer()
    memory.refresh_from_db()
    assert memory.expires_at is not None
    assert memory.expires_at.year == 2031
    page.locator("#history summary").last.click()
    assert "Statement 0." in signed_in.text("#history")
    page.locator("#history >> text=Restore").last.click()
    signed_in.answer()
    memory.refresh_from_db()
    assert memory.content == "Statement 0."


def test_a_failed_distillation_a_quarantine_and_an_agent_are_acted_on_from_their_pages(signed_in: Console) -> None:
    later = timezone.now() + timedelta(hours=2)
    cursor = Cursor.objects.get(session__name="s1")
    Cursor.objects.filter(pk=cursor.pk).update(failures=3, next_attempt_at=later, last_error="the model fell over")
    signed_in.listed("distillation_cursor")
    signed_in.page.click("#result_list >> text=s1")
    signed_in.act("clear-backoff")
    cursor.refresh_from_db()
    assert cursor.failures == 0
    signed_in.listed("distillation_quarantine")
    signed_in.page.locator("#result_list tr.data-row a").first.click()
    signed_in.act("release")
    assert Quarantine.objects.get().state == "released"
    signed_in.open(of(Agent))
    signed_in.act("pause")
    assert Agent.objects.get(handle="ada").status == "paused"
    signed_in.undo()
    assert Agent.objects.get(handle="ada").status == "active"


def test_an_input_is_sent_an_execution_recovered_and_a_long_session_read_in_pieces(
    signed_in: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = signed_in.page
    monkeypatch.setattr(sessions, "PIECE", 2)
    signed_in.open(reverse("admin:agentmemory_session_change", args=[Session.objects.get(name="s1").pk]) + "?from=1")
    assert "Number 0." in signed_in.text("#conversation")
    page.get_by_role("link", name="Later").first.click()
    assert "Number 2." in signed_in.text("#conversation")
    page.get_by_role("link", name="Earlier").first.click()
    page.fill("#send-form textarea", "Go on, please.")
    page.click("#send-form button[type=submit]")
    assert Input.objects.filter(session__name="s1").count() == 1
    page.click("#watch >> text=Look again")
    assert "waits" in signed_in.text("#watch")
    night = Session.objects.get(name="s2")
    running.expire(night)
    signed_in.listed("sessions_exec_execution")
    page.click("#result_list >> text=s2")
    signed_in.act("recover")
    assert Recovery.objects.get().session == night
    assert running.is_free(night)


def test_a_token_is_issued_what_is_stored_is_purged_and_the_cost_taken_along(signed_in: Console) -> None:
    page = signed_in.page
    signed_in.listed("agentmemory_token")
    page.locator(f"a[href^='{reverse('admin:agentmemory_token_add')}']").first.click()
    page.fill("#token-form input[name=agent]", "ada")
    page.fill("#token-form input[name=reason]", WHY)
    page.click("#token-form button[type=submit]")
    plain = signed_in.text("#plain-token").strip()
    assert signed_in.text("#issued").count(plain) == 5, "it is in every snippet"
    signed_in.listed("agentmemory_certificate")
    page.get_by_role("link", name="Find everything, and purge").click()
    page.fill("#find-form input[type=text]", "Statement")
    page.get_by_role("button", name="Find").click()
    page.get_by_role("button", name="What a purge would take").click()
    assert "memories" in signed_in.text("#preview")
    page.fill("#purge-form input[name=reason]", WHY)
    page.get_by_role("button", name="Purge").click()
    assert "It was erased for good" in signed_in.text("#main")
    assert not Memory.objects.filter(content__startswith="Statement").exists()
    assert Certificate.objects.latest("pk").reason == WHY
    page.click("#nav-sidebar >> text=Cost")
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    assert Path(download.value.path()).read_text().startswith("day,")


def test_everything_is_set_up_by_plain_forms(signed_in: Console) -> None:
    signed_in.open(reverse("admin:agentmemory_provider_add"))
    signed_in.page.select_option("[name=kind]", "anthropic")
    signed_in.save(name="glm")
    signed_in.open(reverse("admin:agentmemory_space_add"))
    signed_in.save(slug="north", name="North")
    signed_in.open(reverse("admin:agentmemory_agent_add"))
    signed_in.page.select_option("[name=space]", label="north")
    signed_in.page.select_option("[name=provider]", label="glm")
    signed_in.save(handle="hopper")
    signed_in.open(of(Agent))
    signed_in.save(name="Ada")
    signed_in.open(reverse("admin:sessions_exec_webhook_add"))
    signed_in.page.select_option("[name=space]", label="north")
    signed_in.save(name="pager", url="https://pager.example.org/")
    assert signed_in.text("#secret").startswith("whsec_")
    signed_in.open(reverse("admin:auth_user_add"))
    signed_in.save(username="olga", password1=NEXT, password2=NEXT)
    hopper = Agent.objects.get(handle="hopper")
    assert (hopper.space.slug, hopper.provider) == ("north", Provider.objects.get(name="glm"))
    assert Agent.objects.get(handle="ada").name == "Ada"
    assert User.objects.get(username="olga").check_password(NEXT)
