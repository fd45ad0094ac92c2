"""What a distilled memory rests on, as its reader may see it: its messages in their conversation (D10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Max, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Left

from agentmemory.callers import Caller
from agentmemory.models import Memory, MemoryEvent, MemorySource, Message, Session

SOURCES_SHOWN = 50
CHARS_AROUND = 500


@dataclass(frozen=True, kw_only=True)
class Source:
    """One message that a memory rests on, its quote, and the speech before and after it, cut."""

    session: str
    uid: str
    seq: int
    quote: str
    verified: bool
    before: str | None
    after: str | None


def of(memory: Memory, *, caller: Caller) -> Sequence[Source]:
    """The standing sources of what the memory says now; those of earlier contents do not count.

    A memory may be shared while its conversation is not: an agent sees the sources in sessions of its own alone.
    """
    if memory.origin != Memory.Origin.DISTILLED:
        return ()
    around = Message.objects.speech().filter(session=OuterRef("session")).annotate(cut=Left("text", CHARS_AROUND))
    before = around.filter(seq__lt=OuterRef("seq")).order_by("-seq").values("cut")[:1]
    after = around.filter(seq__gt=OuterRef("seq")).order_by("seq").values("cut")[:1]
    rows = _standing(memory, caller).annotate(before=Subquery(before), after=Subquery(after))
    return [
        Source(
            session=row.session_name,
            uid=row.uid,
            seq=row.seq,
            quote=row.quote,
            verified=row.verified,
            before=row.before,
            after=row.after,
        )
        for row in rows.order_by("session_name", "seq", "-version")[:SOURCES_SHOWN]
    ]


def standing(memory: Memory) -> QuerySet[MemorySource]:
    """The sources of the present content that were not taken back.

    A version that changed something else, such as a pin, rests on what the content rests on.
    """
    earlier = MemoryEvent.objects.filter(pgh_obj_id=memory.pk).exclude(content=memory.content)
    since = earlier.aggregate(version=Max("version"))["version"] or 0
    return MemorySource.objects.filter(memory=memory, version__gt=since, gone_at__isnull=True)


def _standing(memory: Memory, caller: Caller) -> QuerySet[MemorySource]:
    rows = standing(memory)
    if caller.agent is None:
        return rows
    seen = Q(session__in=Session.objects.visible_to(caller))
    # The session was deleted and its memories kept: they were taken from sessions of their owner.
    return rows.filter(seen | Q(session__isnull=True, memory__owner=caller.agent))
