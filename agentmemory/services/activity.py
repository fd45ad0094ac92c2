"""The record of what operators did, and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import models

from agentmemory.models import Activity, Space


def forget(model: type[models.Model], ids: Iterable[Any]) -> int:
    """Take names, reasons and details out of the record of these rows, in a transaction marked as a purge.

    Who did what to which id, and when, stays. Returns how many acts it was.
    """
    acts = Activity.objects.filter(target_type=model._meta.label_lower, target_id__in=[str(pk) for pk in ids])
    return acts.update(target="", reason="", detail={})


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


def who_did(act: str, *, model: type[models.Model], rows: Iterable[models.Model]) -> dict[str, str]:
    """Who did something to each of these rows of a model, by their keys as text."""
    keys = [str(row.pk) for row in rows]
    found = Activity.objects.filter(act=act, target_type=model._meta.label_lower, target_id__in=keys)
    return dict(found.values_list("target_id", "who"))


def newest(act: str, *, target: models.Model) -> Activity | None:
    """When an act was last done to a row, by whom and why."""
    found = Activity.objects.filter(target_type=target._meta.label_lower, target_id=str(target.pk), act=act)
    return found.order_by("-pk").first()
