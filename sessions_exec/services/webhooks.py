"""What operators do with webhooks: each act on record with who and why, in the transaction of the act."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from agentmemory.errors import Invalid, NotFound
from agentmemory.models import Space
from agentmemory.services import activity
from sessions_exec.models import Delivery, Webhook
from sessions_exec.models.webhooks import Event
from sessions_exec.outbound import posting, signing
from sessions_exec.services import delivering

OVERLAP = timedelta(days=1)
"""How long after a rotation calls are signed with the secret before as well."""
KEPT = timedelta(days=30)
FORGOTTEN_AT_ONCE = 10_000


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A webhook and its secret, which is shown once."""

    webhook: Webhook
    secret: str


def create(*, space: Space, name: str, url: str, events: Sequence[str], operator: str, reason: str) -> Opened:
    """Make a webhook. Raises `Invalid` for an address that may not be called, an unknown event, or a taken name."""
    # Outside the transaction: it may wait for the network (A2).
    check_url(url)
    if not events or not set(events) <= set(Event.values):
        raise Invalid("It listens to at least one of the events that there are.", field="events")
    salt = signing.new_salt()
    with transaction.atomic():
        if Webhook.objects.filter(space=space, name=name).exists():
            raise Invalid("The space has a webhook of this name.", field="name")
        webhook = Webhook.objects.create(space=space, name=name, url=url, events=list(events), salt=salt)
        _record("create webhook", webhook, operator, reason, events=list(events))
    return Opened(webhook=webhook, secret=signing.secret(salt))


@transaction.atomic
def rotate(*, webhook_id: int, operator: str, reason: str) -> Opened:
    """Make a new secret. For a day, calls are signed with both, so that a receiver can change at leisure.

    Raises `NotFound`.
    """
    webhook = _locked(webhook_id)
    webhook.old_salt, webhook.old_until = webhook.salt, timezone.now() + OVERLAP
    webhook.salt = signing.new_salt()
    webhook.save(update_fields=["salt", "old_salt", "old_until"])
    _record("rotate secret", webhook, operator, reason)
    return Opened(webhook=webhook, secret=signing.secret(webhook.salt))


@transaction.atomic
def pause(*, webhook_id: int, operator: str, reason: str) -> None:
    """Call it no more until somebody resumes it; what happens meanwhile waits for it. Raises `NotFound`, `Invalid`."""
    webhook = _locked(webhook_id)
    if webhook.paused_at is not None:
        raise Invalid("It is paused already.", field="paused_at")
    webhook.paused_at, webhook.paused_by, webhook.paused_reason = timezone.now(), _who(operator), reason[:500]
    webhook.save(update_fields=["paused_at", "paused_by", "paused_reason"])
    _record("pause webhook", webhook, operator, reason)


@transaction.atomic
def resume(*, webhook_id: int, operator: str, reason: str) -> None:
    """Call it again, at once, with what waits. Raises `NotFound`, and `Invalid` unless it is paused."""
    webhook = _locked(webhook_id)
    if webhook.paused_at is None:
        raise Invalid("It is not paused.", field="paused_at")
    Webhook.objects.filter(pk=webhook.pk).update(
        paused_at=None, paused_by="", paused_reason="", busy_until=None, failures=0, failing_since=None, dropped=0
    )
    webhook.deliveries.filter(state=Delivery.State.PENDING).update(next_attempt_at=timezone.now())
    _record("resume webhook", webhook, operator, reason, dropped=webhook.dropped)


@transaction.atomic
def remove(*, webhook_id: int, operator: str, reason: str) -> None:
    """Delete a webhook with what it was told and is still to be told. Raises `NotFound`."""
    webhook = _locked(webhook_id)
    _record("remove webhook", webhook, operator, reason)
    webhook.delete()


def try_out(*, webhook_id: int, operator: str, reason: str) -> Delivery:
    """Send a test and wait for its outcome. No transaction is open meanwhile (A2). Raises `NotFound`."""
    delivery = delivering.try_out(webhook_id=webhook_id)
    _record("test webhook", delivery.webhook, operator, reason, status=delivery.status, error=delivery.error)
    return delivery


@transaction.atomic
def send_again(*, delivery_id: int, operator: str, reason: str) -> None:
    """Have an ended delivery sent once more, under its id. Raises `NotFound`, `Invalid`."""
    delivery = delivering.send_again(delivery_id=delivery_id)
    _record("send again", delivery.webhook, operator, reason, message=delivery.receivers_id)


def check_url(url: str) -> None:
    """Raise `Invalid` unless a webhook may have this address."""
    posting.check_url(url, private=settings.AGENTMEMORY_WEBHOOK_PRIVATE_ADDRESSES)


def paused_by_failing() -> list[Webhook]:
    """Those that were paused because nothing got through: a person has to look."""
    found = Webhook.objects.filter(paused_by=delivering.ITSELF, paused_at__isnull=False)
    return list(found.select_related("space").order_by("-paused_at")[:5])


def failing(times: int) -> list[Webhook]:
    """Those whose last calls failed so many times in a row, and that are called all the same: the worst first."""
    found = Webhook.objects.filter(failures__gte=times, paused_at__isnull=True)
    return list(found.select_related("space").order_by("-failures", "pk")[:5])


def forget_old() -> str:
    """Delete deliveries that ended a month ago, and what waited as long for a paused webhook; a bounded number."""
    old = timezone.now() - KEPT
    forgotten = 0
    for rows in (Delivery.objects.filter(ended_at__lt=old), Delivery.objects.filter(created_at__lt=old)):
        ids = rows.order_by("pk").values("pk")[:FORGOTTEN_AT_ONCE]
        forgotten += Delivery.objects.filter(pk__in=ids).delete()[0]
    return f"{forgotten} deliveries forgotten"


def _locked(webhook_id: int) -> Webhook:
    rows = Webhook.objects.select_for_update(of=("self",), no_key=True).select_related("space")
    webhook = rows.filter(pk=webhook_id).first()
    if webhook is None:
        raise NotFound("There is no such webhook.")
    return webhook


def _record(act: str, webhook: Webhook, operator: str, reason: str, **detail: Any) -> None:
    activity.record(act, who=_who(operator), target=webhook, reason=reason, space=webhook.space, detail=detail)


def _who(operator: str) -> str:
    return f"operator:{operator}"
