"""Brings what was put down to the webhooks: at least once each, with waits between the attempts.

An attempt is counted, and committed, before it is made; no transaction is open meanwhile (A2); then its outcome is
written. Whoever dies in between leaves a delivery that is due again a little later, under the same id. A webhook gets
one call at a time, so that a slow one holds up nobody but itself.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.utils import timezone

from agentmemory.errors import Invalid, NotFound
from sessions_exec import faults, queue
from sessions_exec.leases import ClockTimestamp
from sessions_exec.models import Delivery, Webhook
from sessions_exec.models.webhooks import TEST
from sessions_exec.outbound import posting, signing
from sessions_exec.services import announcing, ticks

logger = logging.getLogger(__name__)

TASK = "sessions_exec.services.delivering.run"
SECONDS = 10.0
"""For one call as a whole."""
CLAIM = SECONDS + 20.0
WAITS = (5.0, 300.0, 1800.0, 7200.0, 18000.0, 36000.0, 36000.0)
"""Seconds between the attempts: one more than there are waits, over rather more than a day."""
HOLD, LONGEST_HOLD = 5.0, 300.0
"""Seconds without any call to a webhook that has just failed, doubled each time."""
FAILING_FOR = timedelta(days=1)
"""A webhook to which nothing got through for so long is paused."""
AT_ONCE = 16
LOOK = 0.25
LONGEST_RUN = 60.0
BEHIND = 30.0
GONE = 410
ITSELF = "system"
_ALONE = 0x77656268


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """One attempt that was counted: what is sent, and where."""

    delivery_id: int
    webhook_id: int
    attempt: int
    url: str
    body: bytes
    headers: dict[str, str]
    last: bool


def dispatch() -> str:
    """Make a task where something is due: at once if no other task waits, else now and then, to have its turn."""
    if not _free().exists():
        return "nothing to do"
    if queue.waiting().count and not ticks.claim("webhooks behind", every=BEHIND):
        return "other tasks wait"
    queue.enqueue(TASK)
    return "a task was made"


def run() -> str:
    """Deliver what is due, many webhooks side by side. One task at a time does it: others have work of their own."""
    with _alone() as alone:
        return f"{_deliver()} calls made" if alone else "another task delivers"


def try_out(*, webhook_id: int) -> Delivery:
    """Send a test once, now, whatever the webhook's state, and wait for what comes of it. Raises `NotFound`."""
    with transaction.atomic():
        webhook = Webhook.objects.select_related("space").filter(pk=webhook_id).first()
        if webhook is None:
            raise NotFound("There is no such webhook.")
        delivery = Delivery.objects.create(
            webhook=webhook,
            event=TEST,
            body=announcing.body(webhook, TEST, {"webhook": webhook.pk}),
            attempts=1,
            next_attempt_at=timezone.now() + timedelta(seconds=CLAIM),
        )
    claimed = _claimed(webhook, delivery)
    _settle(claimed, _post(claimed))
    delivery.refresh_from_db()
    return delivery


@transaction.atomic
def send_again(*, delivery_id: int) -> Delivery:
    """Have a delivery that has ended sent once more from the start, under the same id. Raises `NotFound`, `Invalid`."""
    delivery = Delivery.objects.select_for_update(of=("self",)).filter(pk=delivery_id).first()
    if delivery is None:
        raise NotFound("There is no such delivery.")
    if delivery.state == Delivery.State.PENDING:
        raise Invalid("It is on its way.", field="state")
    Delivery.objects.filter(pk=delivery.pk).update(
        state=Delivery.State.PENDING, attempts=0, next_attempt_at=ClockTimestamp(), ended_at=None
    )
    return delivery


@contextmanager
def _alone() -> Iterator[bool]:
    """Whether no other process is in this block. The lock ends with its connection: one that dies leaves nothing."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [_ALONE])
        (alone,) = cursor.fetchone() or (False,)
    try:
        yield alone
    finally:
        if alone:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [_ALONE])


def _deliver() -> int:
    """Claim, send, settle, until nothing is due, the time is over, or other tasks wait. Returns how many calls."""
    ends = time.monotonic() + min(LONGEST_RUN, settings.AGENTMEMORY_TASK_TIMEOUT / 2)
    under_way: dict[Future[posting.Answer], Claimed] = {}
    pool = ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="webhook")
    made = 0
    try:
        while True:
            first = made == 0
            if first or (time.monotonic() < ends and not queue.waiting().count):
                for claimed in _claim(AT_ONCE - len(under_way)):
                    under_way[pool.submit(_post, claimed)] = claimed
                    made += 1
            if not under_way:
                return made
            done, _ = wait(under_way, timeout=LOOK, return_when=FIRST_COMPLETED)
            for future in done:
                _settle(under_way.pop(future), future.result())
    finally:
        # Stopped from outside, what is under way is sent again when its claim has run out.
        pool.shutdown(wait=False, cancel_futures=True)


def _due() -> QuerySet[Delivery]:
    return Delivery.objects.filter(state=Delivery.State.PENDING, next_attempt_at__lte=ClockTimestamp())


def _free() -> QuerySet[Webhook]:
    """Webhooks that may be called now, and for which something is due."""
    waits = Q(busy_until__isnull=True) | Q(busy_until__lte=ClockTimestamp())
    rows = Webhook.objects.filter(waits, paused_at__isnull=True, space__archived_at__isnull=True)
    return rows.filter(Exists(_due().filter(webhook=OuterRef("pk"))))


@transaction.atomic
def _claim(most: int) -> list[Claimed]:
    """Take the oldest due delivery of each webhook that is free, and count the attempt before it is made."""
    rows = _free().select_related("space").order_by(F("busy_until").asc(nulls_first=True), "pk")
    found = []
    for webhook in rows.select_for_update(of=("self",), skip_locked=True, no_key=True)[:most]:
        delivery = _due().filter(webhook=webhook).order_by("next_attempt_at", "pk").first()
        if delivery is None:
            continue
        until = ClockTimestamp() + timedelta(seconds=CLAIM)
        delivery.attempts += 1
        Delivery.objects.filter(pk=delivery.pk).update(attempts=delivery.attempts, next_attempt_at=until)
        Webhook.objects.filter(pk=webhook.pk).update(busy_until=until)
        found.append(_claimed(webhook, delivery))
    return found


def _claimed(webhook: Webhook, delivery: Delivery) -> Claimed:
    body = json.dumps(delivery.body, separators=(",", ":"), sort_keys=True).encode()
    now = timezone.now()
    old = [webhook.old_salt] if webhook.old_until is not None and webhook.old_until > now else []
    return Claimed(
        delivery_id=delivery.pk,
        webhook_id=webhook.pk,
        attempt=delivery.attempts,
        url=webhook.url,
        body=body,
        last=delivery.attempts > len(WAITS) or delivery.event == TEST,
        headers=signing.headers(
            message=delivery.receivers_id, at=int(now.timestamp()), body=body, salts=[webhook.salt, *old]
        ),
    )


def _post(claimed: Claimed) -> posting.Answer:
    answer = posting.post(
        url=claimed.url,
        body=claimed.body,
        headers=claimed.headers,
        private=settings.AGENTMEMORY_WEBHOOK_PRIVATE_ADDRESSES,
        seconds=SECONDS,
    )
    faults.reach("webhook.sent")
    return answer


@transaction.atomic
def _settle(claimed: Claimed, answer: posting.Answer) -> None:
    """Write down what came of an attempt, unless another one was counted since."""
    webhook = Webhook.objects.select_for_update(no_key=True).filter(pk=claimed.webhook_id).first()
    if webhook is None:
        return
    now = timezone.now()
    changes: dict[str, Any] = {"status": answer.status, "error": answer.error[:300], "seconds": answer.seconds}
    changes |= _outcome(claimed, answer, now)
    mine = Delivery.objects.filter(pk=claimed.delivery_id, attempts=claimed.attempt, state=Delivery.State.PENDING)
    if mine.update(**changes):
        Webhook.objects.filter(pk=webhook.pk).update(**_standing(webhook, answer, now))
    told: dict[str, Any] = {"action": "webhook.sent", "delivery": claimed.delivery_id, "attempt": claimed.attempt}
    if answer.taken:
        logger.info("a webhook was called", extra={**told, "status": answer.status})
    else:
        told |= {"action": "webhook.failed", "status": answer.status, "error": answer.error[:300]}
        logger.warning("a webhook did not take what it was sent", extra=told)


def _outcome(claimed: Claimed, answer: posting.Answer, now: datetime) -> dict[str, Any]:
    if answer.taken:
        return {"state": Delivery.State.DELIVERED, "next_attempt_at": None, "ended_at": now}
    if claimed.last:
        return {"state": Delivery.State.FAILED, "next_attempt_at": None, "ended_at": now}
    seconds = max(WAITS[claimed.attempt - 1], min(answer.retry_after, WAITS[-1]))
    return {"next_attempt_at": now + timedelta(seconds=seconds)}


def _standing(webhook: Webhook, answer: posting.Answer, now: datetime) -> dict[str, Any]:
    """How the webhook stands after a call: held back a while after a failure, paused when it fails for long."""
    if answer.taken:
        return {"failures": 0, "failing_since": None, "last_success_at": now, "busy_until": None}
    failures, since = webhook.failures + 1, webhook.failing_since or now
    hold = min(HOLD * 2 ** min(webhook.failures, 20), LONGEST_HOLD)
    changes: dict[str, Any] = {"failures": failures, "failing_since": since}
    changes["busy_until"] = now + timedelta(seconds=hold)
    if webhook.paused_at is None and (reason := _lost(answer, now - since)):
        changes |= {"paused_at": now, "paused_by": ITSELF, "paused_reason": f"{reason}: {answer.error}"[:500]}
    return changes


def _lost(answer: posting.Answer, length: timedelta) -> str:
    if answer.status == GONE:
        return "its receiver says that it is gone"
    return "nothing got through for a day" if length >= FAILING_FOR else ""
