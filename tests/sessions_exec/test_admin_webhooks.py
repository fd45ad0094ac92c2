"""The pages of webhooks: the secret is shown once, every change has a reason, and viewers do nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings

from agentmemory.models import Activity, Agent
from sessions_exec.models import Delivery, Webhook
from sessions_exec.models.webhooks import Event
from sessions_exec.services import announcing, delivering
from tests.factories import AgentFactory
from tests.support import receivers
from tests.support.receivers import Receiver

pytestmark = pytest.mark.django_db
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(autouse=True)
def _allowed(settings: Settings) -> None:
    settings.AGENTMEMORY_WEBHOOK_PRIVATE_ADDRESSES = True


@pytest.fixture
def there() -> Iterator[Receiver]:
    with receivers.receiver() as there:
        yield there


@pytest.fixture
def agent() -> Agent:
    return AgentFactory.create(handle="ada", space__slug="acme")


@pytest.fixture
def webhook(agent: Agent, there: Receiver) -> Webhook:
    return Webhook.objects.create(space=agent.space, name=HOSTILE, url=there.url, events=Event.values, salt="s")


def page(name: str, *args: object) -> str:
    return reverse(f"admin:sessions_exec_{name}", args=args)


def act(model: str, name: str, pk: int) -> str:
    return page(f"{model}_act", name) + f"?ids={pk}"


def shown_secret(answer: object) -> str:
    found = re.search(r'id="secret"[^>]*>(whsec_[^<]+)<', answer.content.decode())  # type: ignore[attr-defined]
    assert found
    return found.group(1)


def happens(webhook: Webhook) -> Delivery:
    announcing.announce(Event.PASS_FAILED, space_id=webhook.space_id, data={"session": HOSTILE})
    return Delivery.objects.latest("pk")


def test_a_webhook_is_made_and_its_secret_shown_once(operator: Client, agent: Agent, there: Receiver) -> None:
    given = {"space": agent.space_id, "name": "pager", "url": there.url, "events": ["pass.failed"], "reason": "alerts"}
    answer = operator.post(page("webhook_add"), given)
    secret = shown_secret(answer)
    assert "no-store" in answer["Cache-Control"]
    row = Webhook.objects.get()
    happens(row)
    delivering.run()
    assert there.got[0].signed_by(secret)
    for where in (page("webhook_changelist"), page("webhook_change", row.pk), page("delivery_changelist")):
        assert "whsec_" not in operator.get(where).content.decode()
    assert list(Activity.objects.values_list("act", "who", "reason")) == [("create webhook", "operator:olga", "alerts")]


def test_an_address_that_may_not_be_called_is_refused_at_the_form(
    operator: Client, agent: Agent, webhook: Webhook, settings: Settings
) -> None:
    settings.AGENTMEMORY_WEBHOOK_PRIVATE_ADDRESSES = False
    given = {"name": "w", "url": "https://localhost/hook", "events": ["pass.failed"], "reason": "r"}
    answer = operator.post(page("webhook_add"), {**given, "space": agent.space_id})
    assert answer.status_code == 422
    assert "AGENTMEMORY_WEBHOOK_PRIVATE_ADDRESSES" in answer.content.decode()
    changed = operator.post(page("webhook_change", webhook.pk), given)
    assert "AGENTMEMORY_WEBHOOK_PRIVATE_ADDRESSES" in changed.content.decode()
    assert Webhook.objects.get().name == HOSTILE


def test_what_it_is_told_of_can_be_changed(operator: Client, webhook: Webhook) -> None:
    given = {"name": "w", "url": webhook.url, "events": ["budget.reached"], "reason": "enough"}
    assert operator.post(page("webhook_change", webhook.pk), given).status_code == 302
    webhook.refresh_from_db()
    assert (webhook.name, webhook.events) == ("w", ["budget.reached"])
    assert Activity.objects.get().reason == "enough"


def test_a_new_secret_is_shown_once_and_a_viewer_gets_none(viewer: Client, webhook: Webhook) -> None:
    url = page("webhook_secret", webhook.pk)
    assert viewer.post(url, {"reason": "lost"}).status_code == 403
    viewer.force_login(User.objects.create_superuser("olga"))
    assert "whsec_" not in viewer.get(url).content.decode()
    assert shown_secret(viewer.post(url, {"reason": "lost"}))
    webhook.refresh_from_db()
    assert (webhook.old_salt, webhook.salt != "s") == ("s", True)


def test_a_test_tells_what_came_back(operator: Client, webhook: Webhook, there: Receiver) -> None:
    url = act("webhook", "test", webhook.pk)
    assert "answered 204" in operator.post(url, {"reason": "try"}, follow=True).content.decode()
    there.answers = [(500, {})]
    assert "answered 500" in operator.post(url, {"reason": "try"}, follow=True).content.decode()


def test_it_is_paused_resumed_and_removed_with_a_reason(operator: Client, webhook: Webhook) -> None:
    operator.post(act("webhook", "pause", webhook.pk), {"reason": "moving"})
    text = operator.get(page("webhook_changelist")).content.decode()
    assert "olga: moving" in text
    assert HOSTILE not in text
    operator.post(act("webhook", "resume", webhook.pk), {"reason": "moved"})
    operator.post(act("webhook", "remove", webhook.pk), {"reason": "gone"})
    assert not Webhook.objects.exists()
    acts = list(Activity.objects.order_by("pk").values_list("act", flat=True))
    assert acts == ["pause webhook", "resume webhook", "remove webhook"]


def test_deliveries_tell_attempts_errors_and_the_next_try_and_can_be_sent_again(
    operator: Client, webhook: Webhook, there: Receiver
) -> None:
    there.answers = [(503, {})]
    delivery = happens(webhook)
    delivering.run()
    text = operator.get(page("delivery_changelist") + "?space=acme").content.decode()
    assert "answered 503" in text
    assert "in 4 s" in text or "in 5 s" in text
    assert HOSTILE not in operator.get(page("delivery_change", delivery.pk)).content.decode()
    Delivery.objects.update(state="failed", ended_at=timezone.now(), next_attempt_at=None)
    Webhook.objects.update(busy_until=None)
    operator.post(act("delivery", "again", delivery.pk), {"reason": "repaired"})
    delivering.run()
    assert [got.id for got in there.got] == [str(delivery)] * 2


def test_a_viewer_sees_no_dead_button(viewer: Client, webhook: Webhook) -> None:
    happens(webhook)
    for where in ("webhook_changelist", "delivery_changelist"):
        text = viewer.get(page(where)).content.decode()
        assert "/act/" not in text
    assert "/act/" not in viewer.get(page("webhook_change", webhook.pk)).content.decode()
    assert viewer.get(page("webhook_add")).status_code == 403
    assert viewer.post(act("webhook", "pause", webhook.pk), {"reason": "x"}).status_code == 403


def test_one_that_was_paused_because_it_failed_needs_somebody(operator: Client, webhook: Webhook) -> None:
    url = page("webhook_change", webhook.pk)
    assert url not in operator.get(reverse("admin:index")).content.decode()
    Webhook.objects.update(paused_at=timezone.now(), paused_by=delivering.ITSELF, paused_reason="nothing got through")
    assert url in operator.get(reverse("admin:index")).content.decode()


def test_a_list_of_deliveries_asks_no_query_for_each_row(operator: Client, webhook: Webhook) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as found:
            operator.get(page("delivery_changelist"))
        return len(found)

    happens(webhook)
    few = queries()
    for _ in range(5):
        happens(webhook)
    assert queries() == few
