"""Reads of sessions and messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models
from django.db.models import F, Q, QuerySet

if TYPE_CHECKING:
    from agentmemory.callers import Caller
    from agentmemory.models import Message, Session  # noqa: F401

TITLES_SEARCHED = 20_000
"""Titles have no index: so many of the newest are looked through."""


class SessionQuerySet(models.QuerySet["Session"]):
    def visible_to(self, caller: Caller) -> SessionQuerySet:
        """An agent sees its own sessions, a space token those of its space but of archived agents (T2, T4)."""
        within = self.filter(space=caller.space)
        if caller.agent is None:
            return within.filter(agent__archived_at__isnull=True)
        return within.filter(agent=caller.agent)

    def called(self, words: str, *, among: QuerySet[Session] | None = None) -> QuerySet[Session]:
        """Those whose name begins so, and of the newest `TITLES_SEARCHED` those whose title holds the words."""
        newest = self.aggregate(newest=models.Max("pk"))["newest"] or 0
        titled = Q(title__icontains=words, pk__gt=newest - TITLES_SEARCHED)
        return (self.all() if among is None else among).filter(Q(name__startswith=words) | titled)

    def unfinished(self) -> SessionQuerySet:
        """Those with messages after the last end of a turn (R6)."""
        return self.filter(terminal_seq__lt=F("last_seq"))


class MessageQuerySet(models.QuerySet["Message"]):
    def visible_to(self, caller: Caller) -> MessageQuerySet:
        """Those of the sessions that the caller may see (T2, T4)."""
        from agentmemory.models import Session

        return self.filter(session__in=Session.objects.visible_to(caller))

    def standing(self) -> MessageQuerySet:
        """Neither retracted nor superseded (R5)."""
        return self.filter(retracted_at__isnull=True, superseded_by="")

    def speech(self) -> MessageQuerySet:
        """What distillation reads (D4): standing speech, without user messages that failed."""
        return self.standing().filter(is_speech=True).exclude(type="user", delivery="failed")

    def undelivered(self) -> MessageQuerySet:
        """User messages that the model has not seen yet: they will change in place (D3)."""
        return self.standing().filter(type="user", delivery__in=["enqueued", "deferred"])
