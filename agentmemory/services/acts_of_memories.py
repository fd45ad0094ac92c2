"""Acts on record as one may see them who may not read what is private: a key and a reason tell what a memory says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from agentmemory.models import Activity, Consolidation, Memory, Message, Session
from agentmemory.services import naming

ON_MEMORIES: Final = (Memory._meta.label_lower, Consolidation._meta.label_lower)
_MEMORY, _MERGE = ON_MEMORIES
# Acts on what was said and what is made of it, whose reasons may quote it. Apps further left add to them.
ON_TRANSCRIPTS = {Message._meta.label_lower, Session._meta.label_lower}


def without_what_is_private(acts: Sequence[Activity]) -> list[Activity]:
    """The same acts, those on memories that are not shared now without name, reason and details.

    Those on transcripts are without reason. Not to be saved.
    """
    named = [UUID(act.target_id) for act in acts if act.target_type == _MEMORY and act.target_id]
    rows = Memory.objects.filter(pk__in=named).select_related("owner").only("key", "owner__handle")
    memories = {str(row.pk): row for row in rows}
    for act in acts:
        memory = memories.get(act.target_id)
        if act.target_type in ON_TRANSCRIPTS:
            act.reason = ""
        if act.target_type not in ON_MEMORIES or (memory is not None and memory.owner_id is None):
            continue
        called = naming.memory(memory, private=False) if memory is not None else act.target_id[:8]
        act.target = called if act.target and act.target_id else act.target
        act.reason, act.detail = "", {}
    return list(acts)


def hidden() -> set[str]:
    """What acts may be on that are not shown as they are: a search through them would tell."""
    return {*ON_MEMORIES, *ON_TRANSCRIPTS}
