"""What executions keep of what is erased for good goes with it: prompts, and with a session all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from django.dispatch import receiver

from agentmemory import signals
from agentmemory.models import Session
from agentmemory.services import erasing
from sessions_exec.models import EventCounter, Execution, Input, Recovery, SessionEvent


@receiver(signals.messages_erased)
def erase(
    sender: object, *, session: Session, uids: Sequence[str], whole: bool, counts: Counter[str], **_: Any
) -> None:
    """Empty the prompts that became these messages: their ids stay, so that none is admitted twice (S4)."""
    if whole:
        for model in (SessionEvent, Recovery, Input, Execution, EventCounter):
            erasing.delete(model._default_manager.filter(session=session), counts)
        return
    became = Input.objects.filter(session=session, uid__in=uids)
    counts["sessions_exec_input"] += became.update(prompt="", redactions={})
