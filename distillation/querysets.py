"""Reads of cursors and passes, and the transitions of cursors that are one statement."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from django.db import models
from django.db.models import F, Q, Sum
from django.db.models.functions import Coalesce
from django.db.models.lookups import GreaterThan

from sessions_exec.leases import LeaseQuerySet

if TYPE_CHECKING:
    from agentmemory.callers import Caller
    from agentmemory.models import Space
    from distillation.models import Cursor, DistillationPass  # noqa: F401


# As a difference, because the database keeps statistics of that (see the migrations): of one column below another it
# only guesses, takes a third of all cursors to be behind, and reads them all to find a few (D22).
LAGGING = Q(GreaterThan(F("watermark") - F("position"), 0))
BEHIND = LAGGING | Q(retry_seq__isnull=False)


class CursorQuerySet(LeaseQuerySet["Cursor"]):
    def visible_to(self, caller: Caller) -> CursorQuerySet:
        """An agent sees the cursors of its own sessions, a space token those of its space but of archived agents.

        T2, T4.
        """
        within = self.filter(space=caller.space)
        if caller.agent is None:
            return within.filter(agent__archived_at__isnull=True)
        return within.filter(agent=caller.agent)

    def behind(self) -> CursorQuerySet:
        """Those with messages that may be read and were not looked at, or one to be tried again."""
        return self.filter(BEHIND)

    def due(self, now: datetime) -> CursorQuerySet:
        """Behind, not backing off, not running, of an agent that may work (D22, D16)."""
        return (
            self.behind()
            .free()
            .filter(
                Q(next_attempt_at__isnull=True) | Q(next_attempt_at__lte=now),
                agent__status="active",
                agent__archived_at__isnull=True,
                space__archived_at__isnull=True,
            )
        )


class PassQuerySet(models.QuerySet["DistillationPass"]):
    def tokens_since(self, space: Space, moment: datetime) -> int:
        """Tokens in and out that distillation used in a space since a moment, failures included (D25)."""
        spent = self.filter(space=space, started_at__gte=moment).aggregate(
            n=Coalesce(Sum(F("input_tokens") + F("output_tokens")), 0)
        )
        return int(spent["n"])
