"""How far sessions have been distilled, for those who may see them (T2)."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import OuterRef

from agentmemory.callers import Caller
from agentmemory.errors import NotFound
from agentmemory.models import Agent, Session
from distillation.models import Cursor, Quarantine
from distillation.querysets import CursorQuerySet

QUARANTINED_SHOWN = 100


def listing(*, caller: Caller, agent: Agent | None = None) -> CursorQuerySet:
    """The cursors that the caller may see, with `quarantined_seqs`; those of one agent where it is named."""
    held = Quarantine.objects.filter(cursor=OuterRef("pk"), state=Quarantine.State.HELD).order_by("seq")
    found = (
        Cursor.objects.visible_to(caller)
        .select_related("session", "agent", "space")
        .annotate(quarantined_seqs=ArraySubquery(held.values("seq")[:QUARANTINED_SHOWN]))
        .order_by("pk")
    )
    return found.filter(agent=agent) if agent is not None else found


def positions(*, caller: Caller, sessions: Iterable[Session]) -> dict[int, int]:
    """How far each session has been distilled, by its primary key; without a cursor it is missing."""
    seen = Cursor.objects.visible_to(caller).filter(session__in=[session.pk for session in sessions])
    return dict(seen.values_list("session_id", "position"))


def of(*, caller: Caller, session: Session) -> Cursor:
    """The cursor of one session, as in `listing`. Raises `NotFound`."""
    found = listing(caller=caller).filter(session=session).first()
    if found is None:
        raise NotFound("There is no such session.")
    return found
