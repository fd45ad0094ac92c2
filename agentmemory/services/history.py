"""Every version a memory had, for those who may see the memory (M4, M5)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from agentmemory.callers import Caller
from agentmemory.errors import NotFound
from agentmemory.models import Memory, MemoryEvent


def versions(*, caller: Caller, memory_id: UUID) -> QuerySet[Any]:
    """The versions of a memory, the first one first; a deleted memory has its own, too.

    Of a withdrawn one an agent sees nothing: what it rested on was taken back (D23).

    Of a memory that was another's before it was shared, an agent sees what it was since: what was private stays so
    (M4). Raises `NotFound` for a memory that the caller may not see.
    """
    seen = Memory.objects.visible_to(caller, scope="all" if caller.agent is None else None)
    if caller.agent is not None:
        seen = seen.filter(withdrawn_at__isnull=True)
    if not seen.filter(pk=memory_id).exists():
        raise NotFound("There is no such memory.")
    events: QuerySet[Any] = MemoryEvent.objects.filter(pgh_obj_id=memory_id, space_id=caller.space.pk)
    if caller.agent is not None:
        events = events.filter(Q(owner__isnull=True) | Q(owner=caller.agent))
    return events.select_related("owner").order_by("pgh_id")
