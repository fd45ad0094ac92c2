"""What operators do to the set-up, and what private content they look at, on record."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from django.db import models, transaction
from django.utils import timezone

from agentmemory.models import Activity, Space
from agentmemory.services import activity

# Whoever reads on a page for a while has looked at it once.
LOOK_COUNTS_FOR = timedelta(hours=1)

Made = TypeVar("Made")


@transaction.atomic
def acted(
    act: str,
    run: Callable[[], None],
    *,
    who: str,
    target: models.Model,
    reason: str,
    space: Space | None,
    detail: dict[str, Any] | None = None,
) -> None:
    """Do something and put it on record, both or neither."""
    run()
    activity.record(act, who=who, target=target, reason=reason, space=space, detail=detail)


@transaction.atomic
def made(
    act: str,
    run: Callable[[], Made],
    *,
    who: str,
    target: Callable[[Made], models.Model],
    reason: str,
    space: Space | None,
) -> Made:
    """Make something and put it on record, both or neither. `target` finds the row in what was made."""
    what = run()
    activity.record(act, who=who, target=target(what), reason=reason, space=space)
    return what


def looked(*, who: str, target: models.Model, space: Space | None) -> None:
    """Note that an operator read private content. Counts as no use of it (M6)."""
    _look(who, target._meta.label_lower, str(target.pk), str(target), space)


def looked_through(*, who: str, model: type[models.Model], what: str = "the list") -> None:
    """Note that an operator read through a list, or what else shows private content of several rows."""
    _look(who, model._meta.label_lower, "", what, None)


def _look(who: str, target_type: str, target_id: str, target: str, space: Space | None) -> None:
    recently = timezone.now() - LOOK_COUNTS_FOR
    place = {"who": who, "act": "look", "target_type": target_type, "target_id": target_id}
    if not Activity.objects.filter(**place, at__gt=recently).exists():
        Activity.objects.create(**place, target=target[:300], space=space)
