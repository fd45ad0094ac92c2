"""What executions keep of what is erased for good goes with it: prompts, and with a session all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from django.dispatch import receiver

from agentmemory import signals
from agentmemory.models import Agent, Session
from agentmemory.services import erasing
from sessions_exec.models import Delivery, EventCounter, Execution, Input, Recovery, SessionEvent


@receiver(signals.messages_erased)
def erase(
    sender: object, *, session: Session, uids: Sequence[str], whole: bool, counts: Counter[str], **_: Any
) -> None:
    """Empty the prompts that became these messages: their ids stay, so that none is admitted twice (S4)."""
    told = Delivery.objects.filter(
        webhook__space=session.space_id, body__data__agent=session.agent.handle, body__data__session=session.name
    )
    # What was sent is the receiver's; what is kept of it here, and what still waits, names what is erased.
    erasing.delete(told if whole else told.filter(body__data__uid__in=list(uids)), counts)
    if whole:
        for model in (SessionEvent, Recovery, Input, Execution, EventCounter):
            erasing.delete(model._default_manager.filter(session=session), counts)
        return
    became = Input.objects.filter(session=session, uid__in=uids)
    counts["sessions_exec_input"] += became.update(prompt="", redactions={})


@receiver(signals.agent_leaving)
def leave(sender: object, *, agent: Agent, heir: Agent | None, counts: Counter[str], **_: Any) -> None:
    """Forget what webhooks were told of an agent that is deleted, by whatever handle it goes on."""
    erasing.delete(Delivery.objects.filter(webhook__space=agent.space_id, body__data__agent=agent.handle), counts)
