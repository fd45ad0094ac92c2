"""What inputs say: themselves while they wait, then as their messages say it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentmemory.models import Message
from sessions_exec.models import Input


def of(rows: Sequence[Input]) -> dict[str, Any]:
    """The prompts of inputs of one session, by uid. `None` for what was taken back, or removed since."""
    said = {row.uid: row.prompt for row in rows}
    promoted = [row for row in rows if row.seq is not None]
    if promoted:
        messages = Message.objects.filter(session=promoted[0].session_id, seq__in=[row.seq for row in promoted])
        said.update(messages.values_list("uid", "content"))
    return said
