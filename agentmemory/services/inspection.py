"""What operators see of memories and conversations. Reading here counts no access (M6) and changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from django.db.models import Count, Exists, OuterRef, Q, Subquery
from django.db.models.functions import Greatest, TruncDate

from agentmemory.models import Agent, Consolidation, Memory, MemoryEvent, MemorySource, Message, Session
from agentmemory.services import distilled

VERSIONS_SHOWN = 50
_ORIGINS = ("curated", "distilled")
# Of the same owner: distilled memories have one until they are shared.
_TWIN = {"space": OuterRef("space"), "owner": OuterRef("owner"), "key": OuterRef("key")}
SOURCES_SHOWN = 50
# How many of the newest rows are looked through for what stands out.
SEARCHED = 1_000
COUNTED = 10_000
"""Messages of a session up to which those are counted that are left."""


@dataclass(frozen=True, kw_only=True)
class Quotation:
    """A source in its conversation: its message, the visible ones beside it, and the words it was taken from."""

    source: MemorySource
    before: Message | None
    message: Message | None
    after: Message | None


@dataclass(frozen=True, kw_only=True)
class Version:
    """One version of a memory: who wrote it, when and why, and the text before it."""

    event: Any
    author: str
    reason: str
    at: datetime
    content: str
    previous: str | None
    changes: tuple[str, ...]


def quotations(memory: Memory) -> list[Quotation]:
    """The sources of a memory with one visible message before and after each, in two statements."""
    visible = Message.objects.filter(session=OuterRef("session")).exclude(text="").values("pk")
    sources = list(
        MemorySource.objects.filter(memory=memory)
        .select_related("session", "message")
        .annotate(
            before_id=Subquery(visible.filter(seq__lt=OuterRef("seq")).order_by("-seq")[:1]),
            after_id=Subquery(visible.filter(seq__gt=OuterRef("seq")).order_by("seq")[:1]),
        )
        .order_by("session_name", "seq")[:SOURCES_SHOWN]
    )
    beside = Message.objects.in_bulk([pk for row in sources for pk in (row.before_id, row.after_id) if pk])
    return [
        Quotation(
            source=source,
            before=beside.get(source.before_id),
            message=source.message,
            after=beside.get(source.after_id),
        )
        for source in sources
    ]


_COMPARED = {
    "tags": "tags",
    "context": "context",
    "importance": "importance",
    "pinned": "pinned",
    "expires_at": "expiry",
    "owner_id": "owner",
    "deleted_at": "deletion",
    "withdrawn_at": "withdrawal",
    "merged_into_id": "merge",
    "repeats_id": "link to a curated one",
}


def history(memory: Memory) -> list[Version]:
    """The newest versions of a memory, newest first."""
    events = list(MemoryEvent.objects.filter(pgh_obj_id=memory.pk).order_by("-pgh_id")[: VERSIONS_SHOWN + 1])
    # Not strict: of a memory without a version on record there is none at all.
    pairs = zip(events, [*events[1:], None], strict=False)
    return [_version(event, before) for event, before in pairs][:VERSIONS_SHOWN]


def version_of(memory: Memory, number: int) -> Version | None:
    """One version of a memory, with no text before it."""
    event = MemoryEvent.objects.filter(pgh_obj_id=memory.pk, version=number).order_by("-pgh_id").first()
    return _version(event, None) if event is not None else None


def _version(event: Any, before: Any | None) -> Version:
    context = event.pgh_context or {}
    changes = [name for field, name in _COMPARED.items() if before and getattr(event, field) != getattr(before, field)]
    return Version(
        event=event,
        author=str(context.get("author") or "unknown"),
        reason=str(context.get("reason") or ""),
        at=event.pgh_created_at,
        content=event.content,
        previous=before.content if before else None,
        changes=tuple(changes),
    )


def the_other_one(memory: Memory) -> Memory | None:
    """The curated or distilled memory of the same key and owner."""
    return (
        Memory.objects.kept()
        .filter(space=memory.space_id, owner=memory.owner_id, key=memory.key, merged_into__isnull=True)
        .exclude(origin=memory.origin)
        .first()
    )


def curated_of(memory: Memory) -> Memory | None:
    """The curated memory of a distilled one's key and owner."""
    return the_other_one(memory) if memory.origin == Memory.Origin.DISTILLED else None


def conversation(session: Session, *, first: int, count: int) -> list[Message]:
    """A piece of a transcript: `count` messages from the number `first` on."""
    return list(Message.objects.filter(session=session, seq__gte=first).order_by("seq")[:count])


def messages_left(session: Session) -> int | None:
    """How many messages of a session are there still; None for a long one, of which that is not counted."""
    if session.last_seq > COUNTED:
        return None
    return Message.objects.filter(session=session).order_by().values("pk").count()


def memories_from(session: Session, *, first: int, last: int) -> dict[int, list[Memory]]:
    """Which memories rest on the messages of a piece, by their number."""
    sources = MemorySource.objects.filter(
        session=session,
        seq__range=(first, last),
        memory__deleted_at__isnull=True,
        memory__merged_into__isnull=True,
    )
    found: dict[int, list[Memory]] = {}
    for source in sources.select_related("memory").order_by("seq", "pk")[:500]:
        found.setdefault(source.seq, []).append(source.memory)
    return found


def written_per_day(since: datetime, until: datetime | None = None) -> dict[tuple[date, str], int]:
    """How many memories of each origin were first written from then on, by UTC day."""
    within = Q(created_at__gte=since) & (Q() if until is None else Q(created_at__lt=until))
    rows = (
        Memory.objects.filter(within)
        .order_by()
        .annotate(day=TruncDate("created_at", tzinfo=UTC))
        .values_list("day", "origin")
        # Of rows, not of keys: then an index alone is read.
        .annotate(n=Count("*"))
    )
    return {(day, origin): n for day, origin, n in rows}


def disagreements(count: int = 5) -> list[Any]:
    """Distilled memories beside a curated one of the same key and owner that says something else, newest first.

    They disagree `since` the later of the two was written. Those that are linked, or of which somebody said that both
    are right, are settled.
    """
    settled = Consolidation.objects.filter(kind="link", memory=OuterRef(OuterRef("pk")), other=OuterRef("pk"))
    curated = Memory.objects.live().filter(~Exists(settled), **_TWIN, origin=Memory.Origin.CURATED)
    newest = Memory.objects.searchable().filter(origin=Memory.Origin.DISTILLED).order_by("-updated_at")[:SEARCHED]
    return list(
        Memory.objects.filter(pk__in=newest.values("pk"))
        .filter(Exists(curated.exclude(content=OuterRef("content"))))
        .annotate(curated_id=Subquery(curated.values("pk")[:1]), curated_at=Subquery(curated.values("updated_at")[:1]))
        .annotate(since=Greatest("updated_at", "curated_at"))
        .select_related("space", "owner")
        .order_by("-since")[:count]
    )


def pairs(count: int) -> list[tuple[Memory, Memory]]:
    """Curated and distilled memories of one key that say different things: (curated, distilled), newest first."""
    distilled: list[Any] = list(disagreements(count))
    curated = Memory.objects.in_bulk([row.curated_id for row in distilled])
    return [(curated[row.curated_id], row) for row in distilled if row.curated_id in curated]


def held(count: int = 5) -> list[Memory]:
    """Memories that wait for a person's word before any agent may find them, newest first."""
    newest = Memory.objects.order_by("-updated_at", "-id").values("pk")[:SEARCHED]
    rows = Memory.objects.kept().filter(withdrawn_by=str(distilled.SCREENING), pk__in=newest)
    return list(rows.select_related("space", "owner").order_by("-updated_at")[:count])


def unverified(count: int = 5) -> list[MemorySource]:
    """Sources whose quotation was not found in its message, newest first."""
    rows = MemorySource.objects.filter(
        verified=False, gone_at__isnull=True, memory__deleted_at__isnull=True, memory__withdrawn_at__isnull=True
    ).exclude(quote="")
    newest = MemorySource.objects.order_by("-pk").values("pk")[:SEARCHED]
    return list(rows.filter(pk__in=newest).select_related("memory__owner").order_by("-pk")[:count])


def of_agent(agent: Agent) -> dict[str, int]:
    """How many memories of each origin an agent has, and how many sessions, each counted up to `SEARCHED`."""
    kept = Memory.objects.kept().filter(space=agent.space_id, owner=agent, merged_into__isnull=True)
    found = {origin: kept.filter(origin=origin).order_by().values("pk")[:SEARCHED].count() for origin in _ORIGINS}
    return {**found, "sessions": Session.objects.filter(agent=agent).order_by().values("pk")[:SEARCHED].count()}


def latest(count: int = 5) -> list[Any]:
    """The newest versions of memories."""
    return list(MemoryEvent.objects.order_by("-pgh_id")[:count])
