"""The log of a session: written in the transaction of what it tells, numbered in the order of the commits (S10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.db.models import F, Func, IntegerField

from agentmemory.models import Message, Session
from sessions_exec.leases import ClockTimestamp
from sessions_exec.models import EventCounter, Input, SessionEvent
from sessions_exec.services import prompts

Type = SessionEvent.Type

MOST_CONTENT = 8 * 1024 * 1024
"""Bytes of content in one page, about, as the database keeps it. A page has one event more than fits."""

# The row's lock is held until the commit: whoever comes later waits, and gets the later numbers.
_COUNT = """
INSERT INTO sessions_exec_eventcounter AS counter (session_id, space_id, last_seq) VALUES (%s, %s, %s)
ON CONFLICT (session_id) DO UPDATE SET last_seq = counter.last_seq + excluded.last_seq RETURNING last_seq
"""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One event as its readers see it, with the content that it tells of as that is now."""

    seq: int
    type: str
    at: datetime
    data: dict[str, Any]


@transaction.atomic(savepoint=False)
def append(*, session: Session, entries: Sequence[tuple[Type, dict[str, Any]]]) -> None:
    """Write events, in their order, as part of the open transaction. Two statements, however many there are."""
    if not entries:
        return
    with connection.cursor() as cursor:
        cursor.execute(_COUNT, [session.pk, session.space_id, len(entries)])
        first = cursor.fetchone()[0] - len(entries) + 1
    rows: list[SessionEvent] = []
    for seq, (kind, data) in enumerate(entries, start=first):
        at: Any = ClockTimestamp()
        rows.append(SessionEvent(space_id=session.space_id, session=session, seq=seq, type=kind, at=at, data=data))
    SessionEvent.objects.bulk_create(rows)


def page(*, session: Session, after: int, limit: int) -> list[Event]:
    """The events with numbers above `after`, in order, at most `limit`, and fewer where their content is large."""
    rows = SessionEvent.objects.filter(session=session, seq__gt=after).order_by("seq")[:limit]
    found = [Event(seq=row.seq, type=row.type, at=row.at, data=row.data) for row in rows]
    found = _within(found, _sizes(session, _told(found, Type.MESSAGE_APPENDED, "seq")))
    contents = _contents(session, _told(found, Type.MESSAGE_APPENDED, "seq"))
    said = prompts.of(_inputs(session, _told(found, Type.INPUT_ADMITTED, "id")))
    return [_whole(event, contents, said) for event in found]


def newest(*, session: Session) -> int:
    """The number of the session's last event; 0 before the first."""
    return EventCounter.objects.filter(pk=session.pk).values_list("last_seq", flat=True).first() or 0


def _told(events: Sequence[Event], kind: Type, member: str) -> list[Any]:
    return [event.data[member] for event in events if event.type == kind]


def _sizes(session: Session, seqs: Sequence[int]) -> dict[int, int]:
    size = Func(F("content"), function="pg_column_size", output_field=IntegerField())
    return dict(Message.objects.filter(session=session, seq__in=seqs).annotate(size=size).values_list("seq", "size"))


def _within(events: Sequence[Event], sizes: dict[int, int]) -> list[Event]:
    kept: list[Event] = []
    size = 0
    for event in events:
        kept.append(event)
        size += sizes.get(event.data["seq"], 0) if event.type == Type.MESSAGE_APPENDED else 0
        if size > MOST_CONTENT:
            break
    return kept


def _contents(session: Session, seqs: Sequence[int]) -> dict[int, Any]:
    return dict(Message.objects.filter(session=session, seq__in=seqs).values_list("seq", "content"))


def _inputs(session: Session, uids: Sequence[str]) -> list[Input]:
    return list(Input.objects.filter(session=session, uid__in=uids))


def _whole(event: Event, contents: dict[int, Any], said: dict[str, Any]) -> Event:
    """The event with the value that it tells of. A message that was removed since has none: a later event says so."""
    if event.type == Type.MESSAGE_APPENDED:
        return replace(event, data={**event.data, "content": contents.get(event.data["seq"])})
    if event.type == Type.INPUT_ADMITTED:
        return replace(event, data={**event.data, "prompt": said.get(event.data["id"])})
    return event
