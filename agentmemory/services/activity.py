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
    name: str = "",
) -> None:
    """Put one act on record, in the transaction of the act itself. `name` is what its target is called."""
    Activity.objects.create(
        who=who,
        act=act,
        space=space,
        target_type=target._meta.label_lower,
        target_id=str(target.pk),
        target=(name or str(target))[:300],
        reason=reason[:500],
        detail=detail or {},
    )


def newest(act: str, *, target: models.Model) -> Activity | None:
    """When an act was last done to a row, by whom and why."""
    found = Activity.objects.filter(target_type=target._meta.label_lower, target_id=str(target.pk), act=act)
    return found.order_by("-pk").first()
