"""Webhooks: what happened is told at least once, signed, with waits between the attempts, of its own space alone."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone
from pytest_django import Settings

from agentmemory import authorship
from agentmemory.errors import Invalid
from agentmemory.models import Activity, Agent
from agentmemory.services import erasing, spaces
from sessions_exec import faults, queue
from sessions_exec.models import Delivery, Webhook
from sessions_exec.models.webhooks import Event
from sessions_exec.outbound import posting
from sessions_exec.services import announcing, delivering, executions, recovery, webhooks
from tests.factories import AgentFactory, SessionFactory
from tests.support import receivers, running
from tests.support.receivers import Receiver

pytestmark = pytest.mark.django_db

ASKED = {"operator": "olga", "reason": "asked for"}


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


def opened(agent: Agent, url: str, name: str = "w", *events: str) -> webhooks.Opened:
    listens = list(events or Event.values)
    return webhooks.create(space=agent.space, name=name, url=url, events=listens, **ASKED)


def happens(agent: Agent, event: str = Event.PASS_FINISHED, **data: Any) -> None:
    announcing.announce(event, space_id=agent.space_id, data={"agent": agent.handle, **data})


def age(seconds: float) -> None:
    """As if so many seconds had passed."""
    span = timedelta(seconds=seconds)
    Delivery.objects.filter(next_attempt_at__isnull=False).update(next_attempt_at=F("next_attempt_at") - span)
    for name in ("busy_until", "failing_since", "old_until"):
        Webhook.objects.filter(**{f"{name}__isnull": False}).update(**{name: F(name) - span})


def test_what_happened_comes_signed_as_standard_webhooks_has_it(agent: Agent, there: Receiver) -> None:
    secret = opened(agent, there.url).secret
    happens(agent, pages=3, name="Zoë")
    assert delivering.run() == "1 calls made"
    (got,) = there.got
    assert got.event["type"] == "pass.finished"
    assert got.event["data"] == {"space": "acme", "agent": "ada", "pages": 3, "name": "Zoë"}
    assert got.signed_by(secret)
    assert not got.signed_by(opened(agent, there.url, "other").secret)
    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.attempts, delivery.status, got.id) == ("delivered", 1, 204, str(delivery))
    assert abs(int(got.headers["webhook-timestamp"]) - timezone.now().timestamp()) < 60


def test_the_database_alone_does_not_tell_the_secret(agent: Agent, there: Receiver, settings: Settings) -> None:
    secret = opened(agent, there.url).secret
    assert secret.removeprefix("whsec_") not in str(Webhook.objects.values().get())
    settings.SECRET_KEY = "another"
    happens(agent)
    delivering.run()
    assert not there.got[0].signed_by(secret)


def test_after_a_rotation_both_secrets_count_for_a_day(agent: Agent, there: Receiver) -> None:
    old = opened(agent, there.url)
    new = webhooks.rotate(webhook_id=old.webhook.pk, **ASKED)
    happens(agent)
    delivering.run()
    age(25 * 3600)
    happens(agent)
    delivering.run()
    assert [got.signed_by(new.secret) for got in there.got] == [True, True]
    assert [got.signed_by(old.secret) for got in there.got] == [True, False]


def test_what_is_undone_is_told_to_nobody(agent: Agent, there: Receiver) -> None:
    opened(agent, there.url)
    with transaction.atomic():
        happens(agent)
        transaction.set_rollback(True)
    assert not Delivery.objects.exists()


def test_t1_a_webhook_hears_of_its_own_space_and_of_what_it_listens_to(agent: Agent, there: Receiver) -> None:
    opened(agent, there.url, "w", Event.PASS_FAILED)
    happens(AgentFactory.create(handle="ada"), Event.PASS_FAILED)
    happens(agent, Event.PASS_FINISHED)
    assert not Delivery.objects.exists()
    happens(agent, Event.PASS_FAILED)
    assert Delivery.objects.count() == 1


def test_what_fails_is_tried_again_after_longer_and_longer_waits_and_then_given_up(
    agent: Agent, there: Receiver
) -> None:
    opened(agent, there.url)
    happens(agent)
    there.answers = [(500, {})] * 20
    waits: list[int] = []
    delivery = Delivery.objects.get()
    while delivery.state == "pending":
        assert delivering.run() == "1 calls made"
        delivery.refresh_from_db()
        if delivery.next_attempt_at is not None:
            waits.append(round((delivery.next_attempt_at - timezone.now()).total_seconds() / 5) * 5)
            assert delivering.run() == "0 calls made"
            age(waits[-1] + 5)
    assert waits == list(delivering.WAITS)
    assert (delivery.state, delivery.attempts, delivery.error) == ("failed", len(waits) + 1, "answered 500")
    assert {got.id for got in there.got} == {str(delivery)}


def test_a_receiver_that_asks_for_a_longer_wait_gets_it(agent: Agent, there: Receiver) -> None:
    opened(agent, there.url)
    happens(agent)
    there.answers.append((429, {"Retry-After": "120"}))
    delivering.run()
    due = Delivery.objects.get().next_attempt_at
    assert due is not None
    assert 100 < (due - timezone.now()).total_seconds() < 121


def test_a_receiver_gets_no_longer_wait_than_the_longest_of_ours(agent: Agent, there: Receiver) -> None:
    opened(agent, there.url)
    happens(agent)
    there.answers.append((429, {"Retry-After": "999999"}))
    delivering.run()
    due = Delivery.objects.get().next_attempt_at
    assert due is not None
    assert (due - timezone.now()).total_seconds() <= delivering.WAITS[-1]


def test_t4_a_webhook_of_an_archived_space_is_not_called(agent: Agent, there: Receiver) -> None:
    opened(agent, there.url)
    happens(agent)
    spaces.archive(space_id=agent.space_id)
    assert delivering.run() == "0 calls made"
    spaces.restore(space_id=agent.space_id)
    assert delivering.run() == "1 calls made"


def test_what_a_person_paused_stays_paused_by_that_person(agent: Agent, there: Receiver) -> None:
    pk = opened(agent, there.url).webhook.pk
    webhooks.pause(webhook_id=pk, **ASKED)
    there.answers.append((410, {}))
    webhooks.try_out(webhook_id=pk, **ASKED)
    assert Webhook.objects.get().paused_by == "operator:olga"


def test_what_waits_for_its_next_attempt_is_sent_when_its_webhook_is_resumed(agent: Agent, there: Receiver) -> None:
    pk = opened(agent, there.url).webhook.pk
    happens(agent)
    there.answers.append((500, {}))
    delivering.run()
    webhooks.pause(webhook_id=pk, **ASKED)
    webhooks.resume(webhook_id=pk, **ASKED)
    assert delivering.run() == "1 calls made"
    assert Delivery.objects.get().state == "delivered"


def test_a_space_has_one_webhook_of_a_name_and_a_new_secret_is_on_record(agent: Agent) -> None:
    pk = opened(agent, "http://127.0.0.1:9999/").webhook.pk
    with pytest.raises(Invalid):
        opened(agent, "http://127.0.0.1:9999/")
    webhooks.rotate(webhook_id=pk, **ASKED)
    acts = Activity.objects.order_by("pk").values_list("act", "who", "reason", "target_id")
    assert list(acts) == [(act, "operator:olga", "asked for", str(pk)) for act in ("create webhook", "rotate secret")]


def test_a_worker_that_dies_between_sending_and_noting_it_sends_the_same_again(
    agent: Agent, there: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = opened(agent, there.url).secret
    happens(agent)

    def die(*_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(delivering, "_settle", die)
        with pytest.raises(SystemExit):
            delivering.run()
    assert Delivery.objects.get().attempts == 1
    assert delivering.run() == "0 calls made"
    age(delivering.CLAIM + 1)
    assert delivering.run() == "1 calls made"
    first, again = there.got
    assert first.id == again.id
    assert first.body == again.body
    assert first.signed_by(secret)
    assert again.signed_by(secret)
    assert Delivery.objects.get().state == "delivered"


def test_what_comes_of_an_attempt_is_nothing_to_a_later_one(agent: Agent, there: Receiver) -> None:
    opened(agent, there.url)
    happens(agent)
    (late,) = delivering._claim(1)
    age(delivering.CLAIM + 1)
    (now,) = delivering._claim(1)
    delivering._settle(late, posting.Answer(status=204))
    assert Delivery.objects.get().state == "pending"
    delivering._settle(now, posting.Answer(status=500, error="answered 500"))
    assert Delivery.objects.get().error == "answered 500"


def test_a_slow_receiver_holds_up_nobody_else(agent: Agent, there: Receiver) -> None:
    there.silent = threading.Event()
    with receivers.receiver() as quick:
        opened(agent, there.url, "slow", Event.PASS_FAILED)
        opened(agent, quick.url, "quick", Event.PASS_FINISHED)
        for _ in range(3):
            happens(agent, Event.PASS_FAILED)
            happens(agent, Event.PASS_FINISHED)

        def taken(point: str) -> None:
            # Only when the quick one has all of its own does the slow one answer its first.
            if len(quick.got) == 3 and there.silent is not None:
                there.silent.set()

        faults.install(taken)
        try:
            assert delivering.run() == "6 calls made"
        finally:
            faults.install(None)
    assert len(there.got) == 3
    assert set(Delivery.objects.values_list("state", flat=True)) == {"delivered"}


def test_a_failing_webhook_is_left_alone_for_a_while_whatever_else_waits_for_it(agent: Agent, there: Receiver) -> None:
    opened(agent, there.url)
    there.answers = [(500, {})]
    happens(agent)
    happens(agent)
    assert delivering.run() == "1 calls made"
    assert delivering.dispatch() == "nothing to do"
    age(delivering.HOLD + 1)
    assert delivering.run() == "2 calls made"
    assert set(Delivery.objects.values_list("state", flat=True)) == {"delivered"}


def test_a_webhook_to_which_nothing_gets_through_for_a_day_is_paused_and_what_happens_waits(
    agent: Agent, there: Receiver
) -> None:
    webhook = opened(agent, there.url).webhook
    there.answers = [(500, {})] * 2
    happens(agent)
    delivering.run()
    assert webhooks.paused_by_failing() == []
    age(24 * 3600)
    delivering.run()
    assert webhooks.paused_by_failing() == [webhook]
    happens(agent)
    age(24 * 3600)
    assert delivering.run() == "0 calls made"
    webhooks.resume(webhook_id=webhook.pk, **ASKED)
    assert delivering.run() == "2 calls made"
    assert len({got.id for got in there.got}) == 2
    assert webhooks.paused_by_failing() == []


def test_a_receiver_that_is_gone_is_not_called_again(agent: Agent, there: Receiver) -> None:
    webhook = opened(agent, there.url).webhook
    there.answers = [(410, {})]
    happens(agent)
    delivering.run()
    webhook.refresh_from_db()
    assert webhook.paused_reason == "its receiver says that it is gone: answered 410"


def test_a4_what_waits_for_one_webhook_has_a_bound(
    agent: Agent, there: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcing, "MOST_WAITING", 2)
    webhook = opened(agent, there.url).webhook
    webhooks.pause(webhook_id=webhook.pk, **ASKED)
    for _ in range(5):
        happens(agent)
    webhook.refresh_from_db()
    assert (Delivery.objects.count(), webhook.dropped) == (2, 3)


def test_what_happens_once_is_told_once(agent: Agent, there: Receiver) -> None:
    opened(agent, there.url)
    for _ in range(2):
        announcing.announce(Event.BUDGET_REACHED, space_id=agent.space_id, data={}, once="budget 2026-03-02 100")
    assert Delivery.objects.count() == 1


def test_an_ended_delivery_can_be_sent_again_under_its_id(agent: Agent, there: Receiver) -> None:
    opened(agent, there.url)
    happens(agent)
    with pytest.raises(Invalid, match="on its way"):
        webhooks.send_again(delivery_id=Delivery.objects.get().pk, **ASKED)
    delivering.run()
    webhooks.send_again(delivery_id=Delivery.objects.get().pk, **ASKED)
    delivering.run()
    assert [got.id for got in there.got] == [str(Delivery.objects.get())] * 2


def test_a_test_is_sent_once_and_tells_what_came_of_it(agent: Agent, there: Receiver) -> None:
    opened_ = opened(agent, there.url)
    assert webhooks.try_out(webhook_id=opened_.webhook.pk, **ASKED).state == "delivered"
    there.answers = [(302, {"Location": "/"})]
    failed = webhooks.try_out(webhook_id=opened_.webhook.pk, **ASKED)
    assert (failed.state, failed.error) == ("failed", "answered 302: redirects are not followed")
    assert [got.event["type"] for got in there.got] == ["webhook.test"] * 2
    assert all(got.signed_by(opened_.secret) for got in there.got)
    assert Activity.objects.filter(act="test webhook").count() == 2


def test_a_private_address_is_refused_when_it_is_given_and_when_it_is_called(
    agent: Agent, there: Receiver, settings: Settings
) -> None:
    opened(agent, there.url)
    settings.AGENTMEMORY_WEBHOOK_PRIVATE_ADDRESSES = False
    with pytest.raises(Invalid):
        opened(agent, there.url, "another")
    with pytest.raises(Invalid, match="private"):
        opened(agent, there.url.replace("http:", "https:"), "another")
    happens(agent)
    delivering.run()
    assert there.got == []


@pytest.mark.django_db(transaction=True)
def test_a2_no_transaction_is_open_while_the_receiver_is_waited_for(
    agent: Agent, there: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    webhook = opened(agent, there.url).webhook
    happens(agent)
    open_ones: list[int] = []
    post = posting.post

    def look(**given: Any) -> posting.Answer:
        with contextlib.closing(connection.copy()) as other, other.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND state LIKE 'idle in transaction%'"
            )
            open_ones.append(cursor.fetchone()[0])
        return post(**given)

    monkeypatch.setattr(posting, "post", look)
    delivering.run()
    webhooks.try_out(webhook_id=webhook.pk, **ASKED)
    assert open_ones == [0, 0]


def test_one_task_at_a_time_delivers(agent: Agent, there: Receiver) -> None:
    opened(agent, there.url)
    happens(agent)
    with contextlib.closing(connection.copy()) as other, other.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [delivering._ALONE])
        assert delivering.run() == "another task delivers"
        cursor.execute("SELECT pg_advisory_unlock(%s)", [delivering._ALONE])
    assert delivering.run() == "1 calls made"


def test_other_tasks_that_wait_have_their_turn(agent: Agent, there: Receiver) -> None:
    opened(agent, there.url)
    happens(agent)
    queue.enqueue("tests.support.work.nothing")
    assert delivering.dispatch() == "a task was made"
    assert delivering.dispatch() == "other tasks wait"


def test_a_purge_takes_what_names_the_session_out_of_what_waits_and_was_told(agent: Agent, there: Receiver) -> None:
    opened(agent, there.url)
    session = SessionFactory.create(agent=agent, name="s1")
    happens(agent, session="s1")
    happens(agent, session="s2")
    with transaction.atomic(), authorship.purging():
        erasing.session(session, erasing.Counts())
    assert [row.body["data"]["session"] for row in Delivery.objects.all()] == ["s2"]


def test_old_deliveries_are_forgotten(agent: Agent, there: Receiver) -> None:
    opened(agent, there.url)
    happens(agent)
    delivering.run()
    happens(agent)
    assert webhooks.forget_old() == "0 deliveries forgotten"
    Delivery.objects.filter(state="delivered").update(ended_at=timezone.now() - timedelta(days=31))
    assert webhooks.forget_old() == "1 deliveries forgotten"
    assert Delivery.objects.get().state == "pending"


def test_s7_a_recovery_is_told_in_ids_and_figures(agent: Agent, there: Receiver) -> None:
    opened(agent, there.url)
    session = SessionFactory.create(agent=agent, name="s1")
    running.say(session, "u1")
    held = running.acquire(session, "dead")
    executions.renew(session=session, held=held, phase="unknown")
    running.expire(session)
    recovery.scan()
    body = Delivery.objects.get().body
    assert body["type"] == "execution.recovered"
    assert body["data"] == {
        "space": "acme", "agent": "ada", "session": "s1", "execution": str(held.execution_id), "epoch": held.epoch,
        "phase": "unknown", "tool_calls": 0, "outcome": "continued",
    }  # fmt: skip
