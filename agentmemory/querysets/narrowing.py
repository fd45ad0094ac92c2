"""Rows that stand in a set, read in the way that suits its size."""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet

FEW = 2_000
"""So many keys are named one by one: their rows are then read alone, and no list is looked through for them."""


def among(rows: QuerySet[Any], *keys: QuerySet[Any, Any]) -> QuerySet[Any]:
    """Those of `rows` whose key is in one of the sets.

    The planner guesses how often a condition holds. Where it guesses too high, it goes through a whole list for the few
    that match; where there are many, a page of them is soon found in the list itself.
    """
    known: set[Any] = set()
    for each in keys:
        some = list(each.order_by()[: FEW + 1])
        if len(some) > FEW:
            return rows.filter(Q(*(("pk__in", any_of) for any_of in keys), _connector=Q.OR))
        known |= set(some)
    return rows.filter(pk__in=known)
