"""What executions keep of what is erased for good goes with it: prompts, and with a session all of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from django.dispatch import receiver

from agentmemory import signals
from agentmemory.models import Agent, Message, Session
from agentmemory.services import activity, erasing, removals, transcripts
from agentmemory.services.erasing import Counts
from sessions_exec.marks import OWN, SUMMARY
from sessions_exec.models import Delivery, EventCounter, Execution, Input, ModelCall, Recovery, SessionEvent
from sessions_exec.services import inbox


@receiver(signals.messages_erased)
def erase(
    sender: object,
    *,
    session: Session,
    uids: Sequence[str],
    seqs: Sequence[int],
    whole: bool,
    counts: Counts,
    **_: Any,
) -> None:
    """Empty the prompts that became these messages: their ids stay, so that none is admitted twice (S4).

    Summaries that speak of them go. Of a whole session all goes but what its calls cost.
    """
    told = Delivery.objects.filter(
        webhook__space=session.space_id, body__data__agent=session.agent.handle, body__data__session=session.name
    )
    # What was sent is the receiver's; what is kept of it here, and what still waits, names what is erased.
    erasing.delete(told if whole else told.filter(body__data__uid__in=list(uids)), counts)
    if whole:
        counts["sessions_exec_modelcall"] += session.model_calls.exclude(error="").update(error=erasing.REASON)
        for model in (SessionEvent, Recovery, Input, Execution, EventCounter):
            erasing.delete(model._default_manager.filter(session=session), counts)
        return
    _forget_summaries(session, seqs, counts)
    # A provider's words may repeat what it was asked.
    counts["sessions_exec_modelcall"] += session.model_calls.exclude(error="").update(error=erasing.REASON)
    Execution.objects.filter(pk=session.pk).update(waits_for="")
    became = Input.objects.filter(session=session, uid__in=uids)
    counts["sessions_exec_input"] += became.update(prompt="", redactions={})


@receiver(signals.inputs_erased)
def erase_inputs(sender: object, *, input_ids: Collection[int], counts: Counts, **_: Any) -> set[int]:
    """Take inputs back that wait, and the words out of all of them; what became a message goes with that.

    Their ids stay, so that none is admitted twice (S4). What is gone with its session is no error.
    """
    rows = Input.objects.filter(pk__in=input_ids)
    for session_id in rows.order_by("session").values_list("session", flat=True).distinct():
        # Under its lock none of them becomes a message meanwhile.
        session = transcripts.lock(session_id)
        here = rows.filter(session=session)
        for uid in here.filter(state=Input.State.PENDING).values_list("uid", flat=True):
            inbox.cancel(session=session, uid=uid)
        uids = here.filter(state=Input.State.PROMOTED).values_list("uid", flat=True)
        became = Message.objects.filter(session=session, uid__in=list(uids))
        erasing.messages(session, list(became.values_list("uid", flat=True)), counts)
    counts["sessions_exec_input"] += rows.update(prompt="", redactions={})
    counts["agentmemory_activity"] += activity.forget(Input, input_ids)
    return set(rows.values_list("space", flat=True))


@receiver(signals.agent_leaving)
def leave(sender: object, *, agent: Agent, heir: Agent | None, counts: Counts, **_: Any) -> None:
    """Forget what webhooks were told of an agent that is deleted, by whatever handle it goes on.

    What its calls cost is the heir's then, or is erased with it.
    """
    erasing.delete(Delivery.objects.filter(webhook__space=agent.space_id, body__data__agent=agent.handle), counts)
    calls = ModelCall.objects.filter(agent=agent)
    if heir is not None:
        calls.update(agent=heir)
    else:
        erasing.delete(calls, counts)


def _forget_summaries(session: Session, seqs: Sequence[int], counts: Counts) -> None:
    """Remove the summaries that were made of what these messages said (S11): from them on, each later one too."""
    rows = Message.objects.filter(session=session, type=Message.Type.SYSTEM, subtype=SUMMARY, uid__startswith=OWN)
    uids = list(rows.filter(seq__gt=min(seqs, default=0)).values_list("uid", flat=True))
    if uids:
        removals.remove(session=session, uids=uids, reason=erasing.REASON, guard=_in_every_state)
        counts["agentmemory_message"] += len(uids)


def _in_every_state(session: Session) -> None:
    """What must go goes also while somebody runs the session."""
