"""Sessions: adopted, found and read by those who may see them (T2), and deleted (R7)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.utils import timezone

from agentmemory import signals
from agentmemory.callers import Caller
from agentmemory.errors import Invalid, NotFound
from agentmemory.models import Agent, Message, Session
from agentmemory.models.transcripts import session_name_validator
from agentmemory.querysets.transcripts import SessionQuerySet
from agentmemory.services import limits, redaction, transcripts

METADATA_LENGTH = 20_000


def adopt(
    *,
    agent: Agent,
    name: str,
    title: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    complete: bool | None = None,
) -> tuple[Session, bool]:
    """The agent's session of this name, made where it is missing, and whether it was made.

    With `complete` it is finished to its last message (R6). Raises `Invalid`.
    """
    values = _session_values(name, title, metadata)
    with transaction.atomic():
        session, created = Session.objects.get_or_create(
            agent=agent, name=name, defaults={"space_id": agent.space_id, **values}
        )
        session = transcripts.lock(session.pk)
        for key, value in values.items():
            setattr(session, key, value)
        if complete is not None:
            session.completed_at = (session.completed_at or timezone.now()) if complete else None
        transcripts.save(session, [*values, "completed_at"])
        if created:
            signals.session_created.send(Session, session=session)
        if complete:
            transcripts.finish_open(session)
        elif created:
            signals.turn_completed.send(Session, session=session)
    return session, created


def find(*, caller: Caller, name: str, agent: Agent | None = None) -> Session:
    """The session of this name that the caller may see. Raises `NotFound`, also where several agents have one."""
    found = Session.objects.visible_to(caller).select_related("agent", "space").filter(name=name)
    rows = list((found.filter(agent=agent) if agent else found)[:2])
    if len(rows) != 1:
        raise NotFound("There is no such session.")
    return rows[0]


def listing(*, caller: Caller, agent: Agent | None = None) -> SessionQuerySet:
    """The sessions that the caller may see, the newest first; those of one agent where it is named."""
    found = Session.objects.visible_to(caller).select_related("agent").order_by("-pk")
    return found.filter(agent=agent) if agent is not None else found


def messages(*, session: Session, after: int, limit: int) -> list[Message]:
    """A piece of the transcript: at most `limit` messages, in order, with numbers above `after`."""
    return list(Message.objects.filter(session=session, seq__gt=after).order_by("seq")[:limit])


@transaction.atomic
def delete(*, session: Session, keep_memories: bool = False, guard: transcripts.Guard | None = None) -> None:
    """Delete a session with its messages and its cursor (R7). Memories that rest on it are reconciled, or kept."""
    session = transcripts.lock(session.pk)
    transcripts.permit(session, guard)
    if not keep_memories:
        uids = list(Message.objects.filter(session=session).values_list("uid", flat=True))
        transcripts.tell_gone(session, uids, "its session was deleted")
    signals.session_leaving.send(Session, session=session)
    session.delete()


def _session_values(name: str, title: str | None, metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    if not session_name_validator.regex.fullmatch(name):  # type: ignore[union-attr]
        raise Invalid(str(session_name_validator.message), field="id")
    values: dict[str, Any] = {}
    if title is not None:
        values["title"] = limits.text(redaction.redact(title).value, field="title", maximum=500, blank=True)
    if metadata is not None:
        if len(json.dumps(metadata, default=str)) > METADATA_LENGTH:
            raise Invalid(f"At most {METADATA_LENGTH:,} characters.", field="metadata")
        values["metadata"] = redaction.redact(dict(metadata)).value
    return values
