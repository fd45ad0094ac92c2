"""What happened, put down for every webhook of its space that listens: within the transaction of what happened.

It is ids and figures: no words of a transcript, a memory or an answer, and no text of an error, which may hold some.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.db.models import F
from django.utils import timezone

from sessions_exec.models import Delivery, Webhook

MOST_WAITING = 1_000
"""Deliveries that may wait for one webhook; of more than that it is not told (A4)."""


def listened(event: str, *, space_id: int) -> bool:
    """Whether anybody wants to hear of it."""
    return Webhook.objects.filter(space_id=space_id, events__contains=[event]).exists()


def announce(event: str, *, space_id: int, data: dict[str, Any], once: str = "") -> None:
    """Have every webhook of the space that listens told of `event`, in the caller's transaction.

    `once` names what happens a single time: told again under that name, it is not told twice.
    """
    listening = Webhook.objects.filter(space_id=space_id, events__contains=[event]).select_related("space")
    for webhook in listening.order_by("pk"):
        if webhook.deliveries.filter(state=Delivery.State.PENDING)[:MOST_WAITING].count() >= MOST_WAITING:
            Webhook.objects.filter(pk=webhook.pk).update(dropped=F("dropped") + 1)
            continue
        row = Delivery(webhook=webhook, event=event, once=once, body=body(webhook, event, data))
        Delivery.objects.bulk_create([row], ignore_conflicts=bool(once))


def body(webhook: Webhook, event: str, data: dict[str, Any]) -> dict[str, Any]:
    """What is sent: of which kind, when it happened, and the event's own ids and figures."""
    return {"type": event, "timestamp": moment(timezone.now()), "data": {"space": webhook.space.slug, **data}}


def moment(at: datetime) -> str:
    """A time as RFC 3339 has it, in UTC."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
