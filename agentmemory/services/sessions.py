"""Reads of sessions and their messages, for those who may see them (T2)."""

from __future__ import annotations

from agentmemory.callers import Caller
from agentmemory.models import Agent, Message, Session
from agentmemory.querysets.transcripts import SessionQuerySet


def listing(*, caller: Caller, agent: Agent | None = None) -> SessionQuerySet:
    """The sessions that the caller may see, the newest first; those of one agent where it is named."""
    found = Session.objects.visible_to(caller).select_related("agent").order_by("-pk")
    return found.filter(agent=agent) if agent is not None else found


def messages(*, session: Session, after: int, limit: int) -> list[Message]:
    """A piece of the transcript: at most `limit` messages, in order, with numbers above `after`."""
    return list(Message.objects.filter(session=session, seq__gt=after).order_by("seq")[:limit])
