"""The main job as an operator sees it: a real server, a real cluster, a real browser, and a model that is scripted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User

from agentmemory.services import spaces, tokens
from config import groups
from distillation.models import Cursor, DistillationPass
from tests.support import browsers, clusters, model_server
from tests.support.model_server import ModelServer, Recorded, Reply

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.e2e, pytest.mark.slow]

PASSWORD = "a-password-of-tests"
SAID = "We deploy on Tuesdays, because the on-call team is complete then."
BROKEN = "The staging database is broken in the north region."


@dataclass(kw_only=True)
class Model:
    """Answers sensibly, but for what is broken: that fails until it is mended."""

    mended: bool = False
    asked: list[str] = field(default_factory=list)

    def __call__(self, request: Recorded) -> Reply:
        self.asked.append(request.prompt)
        if BROKEN in request.prompt and not self.mended:
            return model_server.status(500, words="the model fell over")(request)
        return model_server.one_memory_per_user_line(request)


@dataclass(kw_only=True)
class Service:
    """Where the running service is, who may log in, and an agent's token."""

    address: str
    token: str
    model: Model

    def call(self, method: str, path: str, body: Any) -> Any:
        asking = HTTPConnection(urlsplit(self.address).netloc, timeout=20)
        try:
            headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
            asking.request(method, f"/api/v1{path}", json.dumps(body), headers)
            answer = asking.getresponse()
            text = answer.read()
        finally:
            asking.close()
        assert answer.status < 300, text
        return json.loads(text)

    def push(self, session: str, said: str) -> None:
        """A finished turn of one session, and the wish that it be distilled now."""
        self.call("PUT", f"/sessions/{session}", {})
        messages = [
            {"uid": "u1", "type": "user", "content": said},
            {"uid": "a1", "type": "assistant", "content": "I will keep to that."},
            {"uid": "r1", "type": "result", "content": ""},
        ]
        self.call("POST", f"/sessions/{session}/messages", {"messages": messages})
        self.call("POST", f"/sessions/{session}/distill", {})


@pytest.fixture
def service(browser: Browser) -> Iterator[Service]:
    """`browser` comes first: without one nothing is started."""
    groups.ensure()
    User.objects.create_superuser("ada", password=PASSWORD)
    agent = spaces.ensure_agent(spaces.ensure("acme"), "grace")
    token = tokens.issue(space=agent.space, agent=agent).plain
    model = Model()
    with ModelServer(default=model) as server:
        reached = {"ANTHROPIC_BASE_URL": server.address, "ANTHROPIC_API_KEY": "sk-of-tests"}
        with clusters.running("up", "--port", "0", **reached) as process:
            said = clusters.until(
                lambda: re.search(r"^Address: (\S+)$", clusters.output(process), re.MULTILINE), within=90
            )
            yield Service(address=said[1], token=token, model=model)
            assert clusters.stop(process) == 0


def test_an_operator_follows_what_was_said_to_what_is_remembered_and_mends_what_failed(
    browser: Browser, service: Service
) -> None:
    watched = browsers.Watched()
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    watched.watch(page)
    log_in(page, service)
    page.get_by_text("Nothing needs you.").wait_for()

    service.push("deploys", SAID)
    service.push("staging", BROKEN)
    clusters.until(lambda: DistillationPass.objects.filter(outcome="applied").exists())
    clusters.until(lambda: Cursor.objects.filter(failures=1).exists())

    find_the_memory_and_its_source(page, service)
    mend_what_failed(page, service)
    look_at_the_activity(page, service)

    assert watched.errors == []
    assert watched.hosts == {urlsplit(service.address).netloc}


def log_in(page: Page, service: Service) -> None:
    page.goto(f"{service.address}/admin/")
    page.fill("input[name=username]", "ada")
    page.fill("input[name=password]", PASSWORD)
    page.click("button[type=submit]")
    page.wait_for_selector("#start")


def find_the_memory_and_its_source(page: Page, service: Service) -> None:
    page.click("#nav-sidebar >> text=Memories")
    page.fill("#searchbar", "deploy Tuesdays")
    page.press("#searchbar", "Enter")
    page.get_by_role("link", name="we-deploy-on").first.click()
    assert SAID in page.inner_text("#content-main")
    assert "verified" in page.inner_text("#sources")
    page.click("#sources a[href*='#m1']")
    page.wait_for_selector("#m1:target")
    assert SAID in page.inner_text("#m1")
    assert "distilled to here" in page.inner_text("#content-main")


def mend_what_failed(page: Page, service: Service) -> None:
    page.goto(f"{service.address}/admin/")
    assert "1 backing off" in page.inner_text("#figure-stuck")
    page.click("#figure-stuck")
    page.get_by_role("link", name="staging").first.click()
    assert "the model fell over" in page.inner_text("#last-error")
    act(page, "clear-backoff", "I wait for nothing")
    # The model is mended only after the attempt that this caused: what is distilled by then is not offered to be run.
    clusters.until(lambda: Cursor.objects.filter(failures=1).exists())
    service.model.mended = True
    act(page, "run-now", "the model is well again")
    clusters.until(lambda: Cursor.objects.filter(session__name="staging", position__gt=0).exists())
    page.reload()
    assert "idle" in page.inner_text("#cursor")


def act(page: Page, name: str, reason: str) -> None:
    """Click an act's button, see that it asks why, say so, and come back."""
    page.click(f"#act-{name}")
    page.click("#act-form button[type=submit]")
    assert page.locator("#act-form").count() == 1, "nothing is done without a reason"
    page.fill("input[name=reason]", reason)
    page.click("#act-form button[type=submit]")
    page.wait_for_selector("#cursor")


def look_at_the_activity(page: Page, service: Service) -> None:
    page.click("#nav-sidebar >> text=Activity")
    text = page.inner_text("#result_list")
    for words in ("clear backoff", "I wait for nothing", "run now", "the model is well again", "operator:ada"):
        assert words in text
