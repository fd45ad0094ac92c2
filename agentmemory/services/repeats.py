"""Calls that may come again: what was done is done once, and the answer is given again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from django.db import IntegrityError, transaction
from django.utils import timezone

from agentmemory.errors import Invalid
from agentmemory.models import StoredAnswer

KEPT = timedelta(hours=24)
_MEETINGS = 10


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What was answered to a call."""

    status: int
    content_type: str
    body: bytes


def once(*, token_id: int, key: str, digest: str, act: Callable[[], Answer]) -> tuple[Answer, bool]:
    """What `act` answers, or answered to the same call in the last day; and whether it is given again.

    What `act` does and the note of it are one transaction: whatever dies, it was done and is known, or neither. A
    second call at the same moment waits for the first. An answer that says *not now* (5xx, 429, 401) undoes everything
    and is not kept. Raises `Invalid` where the key was used for another call.
    """
    for _ in range(_MEETINGS):
        known = _known(token_id, key)
        if known is not None:
            if known.digest != digest:
                raise Invalid("This key was used for another call.", field="header.Idempotency-Key")
            return Answer(status=known.status, content_type=known.content_type, body=bytes(known.body)), True
        done = _first(token_id, key, digest, act)
        if done is not None:
            return done, False
    raise Invalid("Others use this key all the time.", field="header.Idempotency-Key")


def forget_old() -> int:
    """Delete what is older than a day. Returns how many there were."""
    return StoredAnswer.objects.filter(created_at__lt=timezone.now() - KEPT).delete()[0]


def _known(token_id: int, key: str) -> StoredAnswer | None:
    return StoredAnswer.objects.filter(token_id=token_id, key=key, created_at__gte=timezone.now() - KEPT).first()


@transaction.atomic
def _first(token_id: int, key: str, digest: str, act: Callable[[], Answer]) -> Answer | None:
    """Do it, unless another does it at this moment."""
    StoredAnswer.objects.filter(token_id=token_id, key=key, created_at__lt=timezone.now() - KEPT).delete()
    try:
        with transaction.atomic():
            now = timezone.now()
            stored = StoredAnswer.objects.create(token_id=token_id, key=key, digest=digest, status=0, created_at=now)
    except IntegrityError as error:
        if "stored_answer_key_unique" not in str(error):
            raise
        return None
    answer = act()
    if answer.status >= 500 or answer.status in (401, 429):
        transaction.set_rollback(True)
        return answer
    stored.status, stored.content_type, stored.body = answer.status, answer.content_type, answer.body
    stored.save(update_fields=["status", "content_type", "body"])
    return answer
