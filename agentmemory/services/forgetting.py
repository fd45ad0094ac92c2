"""Forgetting (M9): what was distilled, and nobody has used or written for as long as a rule says."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from agentmemory import authorship
from agentmemory.authorship import CONSOLIDATION, Author
from agentmemory.errors import VersionMoved
from agentmemory.models import Consolidation, Memory, MemoryAccess, MemoryUsage
from agentmemory.querysets.memories import MemoryQuerySet
from agentmemory.services import memories


def unused_since() -> datetime | None:
    """From when on a use counts (`AGENTMEMORY_FORGET_AFTER`); None: nothing is ever forgotten by rule."""
    seconds = settings.AGENTMEMORY_FORGET_AFTER
    return None if seconds is None else timezone.now() - timedelta(seconds=seconds)


def unused(rows: MemoryQuerySet, before: datetime) -> MemoryQuerySet:
    """What the rule forgets of these: a pin, an edit by hand, and a person's word that it is to stay keep a memory."""
    return rows.filter(
        ~Exists(MemoryUsage.objects.filter(memory=OuterRef("pk"), last_at__gte=before)),
        ~Exists(MemoryAccess.objects.filter(memory=OuterRef("pk"), at__gte=before)),
        ~Exists(Consolidation.objects.filter(memory=OuterRef("pk"), kind="forget", undone_at__isnull=False)),
        origin=Memory.Origin.DISTILLED,
        pinned=False,
        edited_by="",
        updated_at__lt=before,
    )


@transaction.atomic
def forget(*, memory_id: UUID, version: int, why: str, author: Author, reason: str) -> Memory:
    """Withdraw a memory by the rule, which `author` carried out. Raises `VersionMoved` if it was changed or used."""
    with authorship.acting(CONSOLIDATION, reason=reason or why):
        rows = Memory.objects.live().select_for_update(of=("self",), no_key=True).filter(pk=memory_id)
        memory = rows.filter(version=version).first()
        before = unused_since()
        if memory is None or before is None or not unused(rows, before).exists():
            raise VersionMoved("The memory was changed or used since this was planned.")
        memory.withdrawn_at, memory.withdrawn_by, memory.withdrawn_reason = timezone.now(), str(CONSOLIDATION), why
        memories.save_version(memory, ["withdrawn_at", "withdrawn_by", "withdrawn_reason"])
    Consolidation.objects.create(
        space_id=memory.space_id, kind="forget", memory=memory, why=why, author=str(author), reason=reason[:500]
    )
    return memory
