"""What operators come for, each from its beginning to its end, in a browser: found, understood, set right.

One server and one browser for all of them. What a task cluster would do is done in between, by its own services.
"""

from __future__ import annotations

import json
import os
import re
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.cache import cache
from django.utils import timezone

from agentmemory.callers import Caller
from agentmemory.models import Activity, Agent, Certificate, Memory, Message, MessageIndex, Token
from agentmemory.services import indexing, memories, sessions, transcripts
from config import groups, runs
from distillation.models import Cursor, DistillationPass
from distillation.services import distilling
from sessions_exec.models import Recovery
from sessions_exec.services import executions, recovery, waiting
from tests.factories import AgentFactory
from tests.support import browsers, clusters, model_server, running
from tests.support.model_server import ModelServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.e2e,
    pytest.mark.slow,
    # Static files are read whole, as the product's own server has them (see `config.asgi`).
    pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume synchronous iterators"),
]

# Where pictures are kept for somebody who wants to look at them; without it none are taken.
PICTURES = os.environ.get("CONSOLE_PICTURES", "")
SAID = "We deploy on Tuesdays, because the on-call team is complete then."
WHY = "a person asked for it"


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    with ModelServer() as server:
        monkeypatch.setattr(settings, "ANTHROPIC_BASE_URL", server.address)
        monkeypatch.setattr(settings, "AGENTMEMORY_PROVIDER_KEYS", {"ANTHROPIC_API_KEY": "sk-of-tests"})
        yield server


@pytest.fixture
def agent(db: None) -> Agent:
    return AgentFactory.create(handle="grace", space__slug="acme")


@dataclass(kw_only=True)
class Console:
    """An operator before a page of the console."""

    page: Page
    context: BrowserContext
    address: str

    def open(self, path: str = "") -> None:
        self.page.goto(f"{self.address}/admin/{path}")

    def go(self, name: str) -> None:
        """Somewhere from the sidebar."""
        self.page.click(f"#nav-sidebar >> text={name}")

    def click(self, name: str, *, exact: bool = True) -> None:
        self.page.get_by_role("link", name=name, exact=exact).first.click()

    def text(self, where: str = "#main") -> str:
        return self.page.inner_text(where)

    def search(self, words: str) -> None:
        """From the box that is on every page."""
        self.page.fill("#nav-search", words)
        self.page.press("#nav-search", "Enter")
        self.page.wait_for_selector("#search-form")

    def act(self, name: str) -> None:
        """Choose an act; see that it wants to know why; say so, and read what it did."""
        self.page.click(f"#act-{name}")
        self.answer()

    def answer(self) -> None:
        self.page.fill("#act-form input[name=reason]", WHY)
        self.page.click("#act-form button[type=submit]")
        self.page.wait_for_selector("#act-form", state="detached")

    def tab_to(self, what: str) -> None:
        """Go from one thing to the next with the keyboard until it is reached, and see where one is."""
        for _ in range(80):
            self.page.keyboard.press("Tab")
            if self.page.evaluate("what => document.activeElement.matches(what)", what):
                assert self.page.evaluate("parseFloat(getComputedStyle(document.activeElement).outlineWidth)") > 0, what
                return
        pytest.fail(f"{what} is not reached with the keyboard")

    def picture(self, name: str) -> None:
        """The page as it is, at both widths, light and dark, where somebody wants to see it."""
        if not PICTURES:
            return
        for scheme in ("light", "dark"):
            self.page.evaluate("dark => document.documentElement.classList.toggle('dark', dark)", scheme == "dark")
            for width in (1280, 768):
                self.page.set_viewport_size({"width": width, "height": 900})
                self.page.screenshot(path=Path(PICTURES) / f"{name}-{width}-{scheme}.png", full_page=True)
                wider = self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
                assert wider <= 0, f"{name} is {wider} pixels wider than {width}"
        self.page.evaluate("document.documentElement.classList.remove('dark')")
        self.page.set_viewport_size({"width": 1440, "height": 900})


@pytest.fixture
def console(browser: Browser, address: str, db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
    # A page that waits for events does so in the server: it has to end with the test.
    monkeypatch.setattr(waiting, "LONGEST", 1.0)
    cache.clear()
    groups.ensure()
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    browsers.sign_in(context, User.objects.create_superuser("ada"), address=address)
    page = context.new_page()
    watched = browsers.Watched()
    watched.watch(page)
    yield Console(page=page, context=context, address=address)
    context.close()
    clusters.until(lambda: all(thread.name != "events" for thread in threading.enumerate()))
    assert watched.errors == []
    assert watched.hosts <= {urlsplit(address).netloc}


def tell(agent: Agent, *said: str, name: str = "standup") -> Cursor:
    """A finished turn of a session."""
    session, _ = sessions.adopt(agent=agent, name=name)
    messages = [transcripts.NewMessage(uid=f"{name}-u{n}", type="user", content=each) for n, each in enumerate(said)]
    end = transcripts.NewMessage(uid=f"{name}-r", type="result", content="")
    transcripts.append(session=session, messages=[*messages, end])
    return Cursor.objects.get(session=session)


def distilled(agent: Agent, said: str = SAID) -> Memory:
    """What the model made of a turn."""
    distilling.run_cursor(cursor_id=tell(agent, said).pk)
    return Memory.objects.get(origin="distilled")


def test_a_distillation_that_has_failed_for_a_day_is_found_read_mended_and_drained(
    console: Console, agent: Agent, model: ModelServer
) -> None:
    cursor = tell(agent, SAID)
    model.script(
        model_server.raw_text("I would rather not answer in JSON."), model_server.status(401, words="no such key")
    )
    distilling.run_cursor(cursor_id=cursor.pk)
    Cursor.objects.update(next_attempt_at=None)
    distilling.run_cursor(cursor_id=cursor.pk)
    day_ago = timezone.now() - timedelta(days=1)
    Cursor.objects.update(due_since=day_ago)

    console.open()
    assert "1 d" in console.text("#figure-oldest")
    assert "1 blocked" in console.text("#figure-stuck")
    console.picture("failed-start")
    console.page.click("#figure-oldest")
    assert "malformed" in console.text("#passes")
    console.picture("failed-cursor")
    first = DistillationPass.objects.earliest("pk")
    console.click(str(first.pk))
    assert "I would rather not answer in JSON." in console.text("#answer")
    console.picture("failed-pass")

    console.open("agentmemory/provider/")
    console.click("anthropic", exact=False)
    assert "no such key" in console.text()
    console.picture("failed-provider")
    console.act("resume")
    console.search("standup")
    console.click("standup")
    console.click("Distillation of this session")
    console.act("clear-backoff")
    distilling.run_due()
    console.page.reload()
    assert "idle" in console.text("#cursor")
    assert "applied" in console.text("#passes")
    console.open()
    assert "none" in console.text("#figure-oldest")


def test_a_distilled_memory_that_is_wrong_is_withdrawn_and_brought_back(
    console: Console, agent: Agent, model: ModelServer
) -> None:
    memory = distilled(agent)
    indexing.fill(MessageIndex.objects.all())

    console.open()
    console.search("deploy Tuesdays")
    assert SAID in console.text("#found-agentmemory_message")
    console.picture("wrong-search")
    console.click(memory.key)
    assert SAID in console.text("#sources")
    console.picture("wrong-memory")
    console.page.click("#sources a[href*='#m1']")
    assert SAID in console.text("#m1:target")
    console.page.go_back()
    assert "Rank 1" in found_by(console)
    console.act("withdraw")
    assert "it is withdrawn" in found_by(console)
    console.picture("wrong-withdrawn")
    console.act("reinstate")
    assert "Rank 1" in found_by(console)


def test_a_memory_is_found_and_withdrawn_with_the_keyboard_alone(
    console: Console, agent: Agent, model: ModelServer
) -> None:
    memory = distilled(agent)
    keys = console.page.keyboard

    console.open()
    console.tab_to("#nav-search")
    keys.type(memory.key)
    keys.press("Enter")
    console.page.wait_for_selector("#search-form")
    console.tab_to(f"a[href*='{memory.pk}']")
    keys.press("Enter")
    console.page.wait_for_selector("#act-withdraw")
    console.tab_to("#act-withdraw")
    keys.press("Enter")
    console.page.wait_for_selector("#act-form")
    console.tab_to("#act-form input[name=reason]")
    keys.type(WHY)
    keys.press("Enter")
    console.page.wait_for_selector("#act-reinstate")
    memory.refresh_from_db()
    assert memory.withdrawn_reason == WHY


def test_the_palette_opens_what_was_found_first_and_the_search_page_before_anything_was(
    console: Console, agent: Agent, model: ModelServer
) -> None:
    memory = distilled(agent)
    keys = console.page.keyboard

    def ask(words: str) -> None:
        console.open()
        keys.press("Control+k")
        # It takes the focus by itself, unless it came into sight too late for that.
        console.page.click("#search-input-command")
        keys.type(words)

    ask("")
    # Without keys nothing is looked for.
    console.page.fill("#search-input-command", memory.key)
    keys.press("Enter")
    console.page.wait_for_selector("#search-form")
    assert f"s={memory.key}" in console.page.url

    ask(memory.key)
    console.page.wait_for_selector("#command-results-list li.active")
    console.picture("palette")
    keys.type("zz")
    keys.press("Enter")
    console.page.wait_for_selector("#search-form")
    assert f"s={memory.key}zz" in console.page.url, "what is shown was found for other words"

    ask(memory.key)
    console.page.wait_for_selector("#command-results-list li.active")
    keys.press("Enter")
    console.page.wait_for_selector("#memory")
    assert str(memory.pk) in console.page.url

    ask(memory.key)
    console.page.wait_for_selector("#command-results-list li.active")
    for _ in range(9):
        keys.press("ArrowDown")
    keys.press("Enter")
    console.page.wait_for_selector("#search-form")


def found_by(console: Console) -> str:
    """What its owner finds now."""
    console.page.fill("#found-by-q", "deploy")
    console.page.click("#found-by button")
    return console.text("#found-by")


def test_curated_and_distilled_that_disagree_are_compared_and_one_is_promoted(
    console: Console, agent: Agent, model: ModelServer
) -> None:
    memory = distilled(agent)
    draft = memories.Draft(key=memory.key, content="We deploy on Fridays.")
    curated = memories.put(caller=Caller(space=agent.space, agent=agent), draft=draft).memory

    console.open()
    assert "disagree" in console.text("#needs-you")
    console.go("Compare")
    assert "Fridays" in console.text(f"#pair-{memory.pk}")
    console.picture("disagree-compare")
    console.click("Promote the distilled one")
    assert "written over" in console.text("#texts")
    console.picture("disagree-promote")
    console.answer()
    console.open(f"agentmemory/memory/{curated.pk}/change/")
    assert SAID in console.text("#content")
    assert "Fridays" in console.text("#history")
    assert WHY in console.text("#history")
    assert "Both say the same." in console.text("#other")
    console.page.click("#history a >> text=Restore")
    console.picture("disagree-restore")
    console.page.go_back()
    console.picture("disagree-history")
    console.open()
    assert "disagree" not in console.text("#needs-you")


def test_what_is_stored_about_a_person_is_found_previewed_purged_and_certified(
    console: Console, agent: Agent, model: ModelServer
) -> None:
    distilled(agent, "The phone of Mrs Ahlgren is 0170 555.")

    console.open()
    console.search("Ahlgren")
    console.page.click("#find-everything")
    assert "memory" in console.text("#found")
    assert "message" in console.text("#found")
    console.picture("purge-found")
    console.page.get_by_role("button", name="What a purge would take").click()
    assert "messages" in console.text("#preview")
    console.picture("purge-preview")
    console.page.fill("#purge-form input[name=reason]", WHY)
    console.page.get_by_role("button", name="Purge").click()
    console.page.wait_for_selector("text=It was erased for good")
    console.picture("purge-certificate")
    console.search("Ahlgren")
    assert "Nothing is called so" in console.text("#nothing-found")
    assert (Memory.objects.count(), Message.objects.filter(text__contains="Ahlgren").count()) == (0, 0)
    assert Certificate.objects.get().reason == WHY


def test_a_runner_that_died_is_recovered_and_its_session_says_so(console: Console, agent: Agent) -> None:
    session, _ = sessions.adopt(agent=agent, name="night-shift")
    held = running.acquire(session, "host-7:4211")
    running.say(session, "u1", content="Restart the ingress.", guard=held)
    executions.renew(session=session, held=held, phase="unknown")
    running.expire(session)

    console.open()
    assert "1" in console.text("#executions-expired")
    console.page.click("#executions-expired")
    assert "night-shift" in console.text("#result_list")
    console.picture("died-executions")
    console.click("night-shift", exact=False)
    console.act("recover")
    assert "recovered" in console.text("#content-main")
    console.picture("died-recovered")
    console.open("sessions_exec/recovery/")
    assert "an input asks to go on" in console.text("#result_list")
    assert not recovery.recover(session_id=session.pk), "what a person recovered is recovered once"
    assert Recovery.objects.count() == 1


def test_an_input_that_is_sent_from_a_sessions_page_is_seen_answered_without_loading_it_again(
    console: Console, agent: Agent, model: ModelServer
) -> None:
    agent.run_here = True
    agent.save()
    session = tell(agent, SAID).session
    assert session is not None
    model.script(model_server.streamed("On ", "Tuesdays."))

    console.open(f"agentmemory/session/{session.pk}/change/")
    console.page.fill("#send-form textarea", "When do we deploy?")
    console.page.click("#send-form button[type=submit]")
    console.page.wait_for_selector("#watch >> text=An input waits for a runner.")
    console.picture("sent")
    console.page.evaluate("window.loadedOnce = true")
    assert runs.run_session(session.pk) == "idle"
    console.page.wait_for_selector("#conversation >> text=On Tuesdays.")
    assert "When do we deploy?" in console.text("#conversation")
    console.page.wait_for_function("document.querySelector('#watch').innerText === ''")
    assert console.page.evaluate("window.loadedOnce"), "it was loaded again"
    console.picture("answered")
    policy = console.page.request.get(console.page.url).headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "'unsafe-inline'" not in policy.partition("script-src")[2].partition(";")[0]


def test_a_new_agent_gets_a_token_that_is_shown_once_and_a_snippet_that_connects(
    console: Console, agent: Agent
) -> None:
    console.open("agentmemory/agent/add/")
    console.page.select_option("select[name=space]", label="acme")
    console.page.fill("input[name=handle]", "hopper")
    if console.page.locator("input[name=reason]").count():
        console.page.fill("input[name=reason]", WHY)
    console.picture("agent-add")
    console.page.click("button[name=_save]")
    console.picture("agent-made")
    console.page.click("#connect")
    assert console.page.input_value("#token-form input[name=agent]") == "hopper"
    console.picture("agent-ask")
    console.page.fill("#token-form input[name=reason]", WHY)
    console.page.click("#token-form button[type=submit]")
    plain = console.text("#plain-token").strip()
    console.picture("agent-token")
    console.context.grant_permissions(["clipboard-read", "clipboard-write"])
    console.page.get_by_role("button", name="Copy the configuration").click()
    console.page.wait_for_selector("text=Copied")
    copied = json.loads(console.page.evaluate("navigator.clipboard.readText()"))
    assert copied["mcpServers"]["agentmemory"]["headers"] == {"Authorization": f"Bearer {plain}"}

    (said,) = re.findall(r"curl -H \"(Authorization): (Bearer \S+)\" (\S+)", console.text("#issued"))
    with urllib.request.urlopen(urllib.request.Request(said[2], headers={said[0]: said[1]}), timeout=10) as answer:
        assert json.load(answer)["items"] == []
    assert plain in said[1]
    exec(console.text("#push"), {})
    assert Message.objects.get(session__name="first", uid="u1").session.agent.handle == "hopper"
    console.open("agentmemory/token/")
    assert plain not in console.page.content()
    assert "ago" in console.text("#result_list") or "now" in console.text("#result_list"), "it was used"
    assert Token.objects.get().agent == Agent.objects.get(handle="hopper")


def test_a_months_cost_is_told_by_day_agent_and_provider(console: Console, agent: Agent) -> None:
    cursor = tell(agent, SAID)
    row: dict[str, Any] = {"space": agent.space, "agent": agent, "cursor": cursor, "session_name": "standup"}
    for back in range(3):
        DistillationPass.objects.create(
            **row,
            epoch=back + 1,
            start=0,
            end=2,
            outcome="applied" if back else "failed",
            provider_name="glm",
            input_tokens=200_000,
            output_tokens=10_000,
            cost="1.25",
            started_at=timezone.now() - timedelta(days=back),
        )

    console.open()
    console.go("Cost")
    text = console.text("#content-main").replace("\u202f", " ")
    assert "US$ 3.75" in text
    assert "1 failed" in text
    assert console.text("#cost").count("grace") == 3
    assert "100 %" in console.text("#by-agent").replace("\u202f", " ")
    console.picture("cost")
    with console.page.expect_download() as download:
        console.click("CSV")
    lines = Path(download.value.path()).read_text().splitlines()
    assert len(lines) == 4
    assert lines[1].endswith(",1,1,200000,10000,1.250000")
    assert not Activity.objects.exclude(act="look").exists()
