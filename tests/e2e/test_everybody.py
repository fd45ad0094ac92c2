"""The console in a real browser, page by page: for everybody who looks, and by the policy of its pages.

Each page is loaded once. Then it is light and dark, wide and narrow, by turns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from agentmemory.models import Memory, Provider, Session
from distillation.models import Cursor, DistillationPass, Quarantine
from sessions_exec.models import Execution
from tests.factories import ProviderFactory
from tests.support import browsers
from tests.support.filled import fill

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.e2e, pytest.mark.slow]

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
GRAVE = ("serious", "critical")
WIDTHS = (1280, 768)


def of(model: Any, name: str = "change") -> str:
    row = model.objects.first()
    assert row is not None
    return reverse(f"admin:{model._meta.label_lower.replace('.', '_')}_{name}", args=[row.pk])


def listed(*names: str) -> list[str]:
    return [reverse(f"admin:{name}_changelist") for name in names]


def act(model: Any, name: str) -> str:
    base = reverse(f"admin:{model._meta.label_lower.replace('.', '_')}_act", args=[name])
    return f"{base}?ids={model.objects.first().pk}"


def pages() -> list[str]:
    """One of each kind, and those that are like no other."""
    return [
        reverse("admin:index"),
        *listed("agentmemory_memory", "distillation_cursor", "agentmemory_activity", "sessions_exec_heartbeat"),
        of(Memory),
        act(Memory, "edit"),
        reverse("admin:agentmemory_memory_compare"),
        of(Session),
        of(Cursor),
        of(DistillationPass),
        of(Quarantine),
        of(Execution),
        of(Provider),
        reverse("admin:distillation_cost"),
        reverse("admin:agentmemory_certificate_find"),
        reverse("admin:agentmemory_token_add"),
        reverse("admin:sessions_exec_webhook_add"),
        of(User),
    ]


def test_every_page_is_for_everybody_and_keeps_to_its_policy(browser: Browser, live_server: Any) -> None:
    fill()
    ProviderFactory.create()
    context = browser.new_context(viewport={"width": WIDTHS[0], "height": 900}, color_scheme="light")
    page, watched = context.new_page(), browsers.Watched()
    watched.watch(page)
    found = look(page, live_server.url + reverse("admin:login"))
    browsers.sign_in(context, User.objects.create_superuser("ada"), address=live_server.url)
    for place in pages():
        found += look(page, live_server.url + place)
    page.goto(live_server.url + "/api/v1/docs")
    page.wait_for_selector(".swagger-ui .info")
    context.close()
    assert found == []
    assert watched.errors == []


def look(page: Page, address: str) -> list[str]:
    """What is wrong with a page, a line each."""
    from axe_playwright_python.sync_playwright import Axe

    page.goto(address, wait_until="load")
    name = page.url.partition("/admin/")[2]
    wrong = [f"{name} {line}" for line in grave(Axe().run(page, options={"runOnly": RULES}))]
    page.evaluate("document.documentElement.classList.add('dark')")
    wrong += [f"{name} dark {line}" for line in grave(Axe().run(page, options={"runOnly": ["color-contrast"]}))]
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        wider = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        wrong += [f"{name} is {wider} pixels wider than {width}"] if wider > 0 else []
    page.set_viewport_size({"width": WIDTHS[0], "height": 900})
    return wrong


def grave(results: Any) -> list[str]:
    return [
        f"{each['id']}: {node['html'][:160]}: {node['failureSummary'][:300]}"
        for each in results.response["violations"]
        if each["impact"] in GRAVE
        for node in each["nodes"]
    ]
