"""The record of what operators did, and why."""

from __future__ import annotations

from typing import Any

from django.db import models

from agentmemory.models import Activity, Space


def record(
    act: str,
    *,
    who: str,
    target: models.Model,
    reason: str,
    space: Space | None = None,
    detail: dict[str, Any] | None = None,
) -> None:
    """Put one act on record, in the transaction of the act itself."""
    Activity.objects.create(
        who=who,
        act=act,
        space=space,
        target_type=target._meta.label_lower,
        target_id=str(target.pk),
        target=str(target)[:300],
        reason=reason[:500],
        detail=detail or {},
    )
