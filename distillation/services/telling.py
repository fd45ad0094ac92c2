"""What webhooks, and the log where one failed, hear of passes and of the day's tokens: ids and figures alone."""

from __future__ import annotations

import logging
from datetime import UTC
from functools import partial
from typing import Any

from django.db import transaction
from django.utils import timezone

from distillation.models import DistillationPass
from distillation.services import gates
from sessions_exec.models.webhooks import Event
from sessions_exec.services import announcing

logger = logging.getLogger(__name__)


def ended(row: DistillationPass) -> None:
    """Tell of a pass that has ended, in the transaction that ends it."""
    failed = row.outcome == DistillationPass.Outcome.FAILED
    if failed:
        transaction.on_commit(partial(_warn, row))
    event = Event.PASS_FAILED if failed else Event.PASS_FINISHED
    announcing.announce(event, space_id=row.space_id, data=_figures(row) | ({"failure": row.failure} if failed else {}))


def _warn(row: DistillationPass) -> None:
    ids = {"pass_id": row.pk, "cursor_id": row.cursor_id, "agent_id": row.agent_id, "space_id": row.space_id}
    called = {"provider": row.provider_name, "kind": row.failure}
    logger.warning("a pass failed", extra={"action": "pass.failed", **ids, **called})


def spent(row: DistillationPass) -> None:
    """Tell, once a day and budget, that a pass has used up the tokens of its space's day (D21)."""
    budget = gates.daily_budget(row.space)
    if budget is None or not announcing.listened(Event.BUDGET_REACHED, space_id=row.space_id):
        return
    now = timezone.now()
    used = gates.spent_today(row.space, now=now)
    if used >= budget:
        day = f"{now.astimezone(UTC):%Y-%m-%d}"
        told = {"day": day, "budget": budget, "tokens": used}
        announcing.announce(Event.BUDGET_REACHED, space_id=row.space_id, data=told, once=f"budget {day} {budget}")


def _figures(row: DistillationPass) -> dict[str, Any]:
    return {
        "agent": row.agent.handle,
        "session": row.session_name,
        "pass": row.pk,
        "start": row.start,
        "end": row.end,
        "outcome": row.outcome,
        "provider": row.provider_name,
        "model": row.model,
        "written": len(row.written),
        "refused": len(row.refused),
        "input_tokens": row.input_tokens,
        "output_tokens": row.output_tokens,
        "cost": None if row.cost is None else f"{row.cost:f}",
        "seconds": row.seconds,
    }
