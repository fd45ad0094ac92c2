"""What operators do with distillation. Each act is put on record with who and why (D24)."""

from __future__ import annotations

import logging

from django.db import transaction

from agentmemory.errors import NotFound
from distillation.models import Cursor
from distillation.services import coordinator

logger = logging.getLogger(__name__)


@transaction.atomic
def run_now(*, cursor_id: int, operator: str, reason: str) -> None:
    """Have a session distilled now, whatever it waits for. Raises `NotFound`."""
    cursor = _cursor(cursor_id)
    coordinator.request(session=cursor.session, force=True)
    _record("run_now", cursor, operator, reason)


@transaction.atomic
def clear_backoff(*, cursor_id: int, operator: str, reason: str) -> None:
    """Forget a session's failures, so that it is due again at the next tick. Raises `NotFound`."""
    cursor = _cursor(cursor_id)
    Cursor.objects.filter(pk=cursor_id).update(
        failures=0, window_failures=0, single_failures=0, window_limit=None, next_attempt_at=None, enqueued_at=None
    )
    _record("clear_backoff", cursor, operator, reason)


def _cursor(cursor_id: int) -> Cursor:
    cursor = Cursor.objects.select_related("session").filter(pk=cursor_id).first()
    if cursor is None:
        raise NotFound("There is no such cursor.")
    return cursor


def _record(act: str, cursor: Cursor, operator: str, reason: str) -> None:
    logger.info(
        "an operator acted",
        extra={"action": f"operator.{act}", "cursor": cursor.pk, "operator": operator},
    )
