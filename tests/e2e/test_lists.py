"""Lists on the screens of operators, with names as long as real ones: every column is in view."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.db.models import Value
from django.db.models.functions import Concat
from django.urls import reverse
from django.utils import timezone

from agentmemory.models import Activity, Agent, LoginTries, Memory, Provider, Session, Space, Token
from distillation.models import Cursor, DistillationPass, Quarantine
from sessions_exec.models import Delivery, Execution, Input, Recovery, Webhook
from tests.factories import ProviderFactory
from tests.support import browsers
from tests.support.filled import fill

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.e2e, pytest.mark.slow]

HOLDER = "runner-7f9c4d5b8-x2xkq.production.svc:4211"
ERROR = "ReadTimeout: the model at https://inference.northern.example.org/v1/messages did not answer within 120 seconds"
WHY = "an auditor asked for it in the review of the northern region on Thursday, see the minutes of that meeting"
# These are pages of another kind.
PAGES = {"sessions_exec_heartbeat_changelist", "sessions_exec_tick_changelist"}
WIDER = """() => [...document.querySelectorAll("#result_list")].map(list => {
  const box = list.closest(".simplebar-content-wrapper") || list.parentElement;
  return box.scrollWidth - box.clientWidth;
})[0] ?? null"""


def lengthen() -> None:
    """Names, reasons and errors as they come in real life."""
    now = timezone.now()
    later = now + timedelta(hours=2)
    Space.objects.update(slug="northern-europe-production", name="Northern Europe, production")
    Agent.objects.update(handle="customer-support-escalations", name="Escalations of customer support")
    Session.objects.update(
        name=Concat(Value("2026-11-30-deploy-pipeline-review-"), "name"),
        title="Why the deploy pipeline of the northern region waits",
    )
    Memory.objects.filter(origin="distilled").update(
        key=Concat(Value("deploy-pipeline-of-the-northern-region-"), "key"),
        content="The deploy pipeline of the northern region waits for the on-call team, which is complete on Tuesdays.",
        tags=["deployments", "northern-region", "on-call"],
    )
    Provider.objects.update(
        name="inference-northern-europe",
        address="https://inference.northern.example.org/anthropic",
        key_variable="AGENTMEMORY_KEY_INFERENCE_NORTHERN_EUROPE",
        default_model="claude-sonnet-4-5-20250929",
        price_in="3.00",
        price_out="15.00",
    )
    Token.objects.update(name="the runner of the northern region", last_used_at=now)
    target = {"target_type": "agentmemory.memory", "target_id": "1", "target": "deploy-pipeline-of-the-northern-region"}
    Activity.objects.create(who="operator:margarethe.von-hohenstein", act="give back", reason=WHY, at=now, **target)
    Cursor.objects.update(
        failures=4, last_error=ERROR, next_attempt_at=later, last_success_at=now, due_since=now - timedelta(days=3)
    )
    DistillationPass.objects.update(
        outcome="failed",
        error=ERROR,
        provider_name="inference-northern-europe",
        session_name="2026-11-30-deploy-7f3a91",
    )
    Quarantine.objects.update(error=ERROR, decided_reason=WHY)
    Execution.objects.update(holder=HOLDER, expires_at=later)
    Recovery.objects.create(
        session=Session.objects.earliest("pk"),
        space=Space.objects.get(),
        execution_id=uuid4(),
        epoch=1,
        holder=HOLDER,
        phase="unknown",
        expired_at=now,
        turn=6,
        message_uid="recovered-1",
        tool_calls=["toolu_01A09q90qw90lq917835lq9"],
        outcome=Recovery.Outcome.values[0],
    )
    Input.objects.update(prompt={"text": WHY})
    Webhook.objects.update(
        name="the pager of the on-call team", url="https://hooks.northern.example.org/agentmemory/v1"
    )
    Delivery.objects.update(status=502, error=ERROR)
    for name in ("margarethe.von-hohenstein", "vic"):
        User.objects.create_user(name, email=f"{name}@northern.example.org").groups.set(Group.objects.all())
    LoginTries.objects.create(kind="account", subject="margarethe.von-hohenstein", tries=9)


def lists() -> list[str]:
    return [f"{model._meta.app_label}_{model._meta.model_name}_changelist" for model in admin.site._registry]


def test_no_list_is_wider_than_a_screen_of_1280(browser: Browser, live_server: Any) -> None:
    fill()
    ProviderFactory.create()
    lengthen()
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    browsers.sign_in(context, User.objects.create_superuser("ada"), address=live_server.url)
    page = context.new_page()
    wider = {}
    for name in lists():
        page.goto(live_server.url + reverse(f"admin:{name}"))
        wider[name] = page.evaluate(WIDER)
    context.close()
    assert {name: by for name, by in wider.items() if by} == {}
    assert {name for name, by in wider.items() if by is None} == PAGES
