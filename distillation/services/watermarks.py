"""How far each session may be distilled, kept up to date in the transaction of what changes it (D3)."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.dispatch import receiver
from django.utils import timezone

from agentmemory import signals
from agentmemory.models import Message, Session
from distillation.models import Cursor


@receiver(signals.turn_completed)
def follow(sender: object, *, session: Session, **_: Any) -> None:
    """Move the watermark of a session that its sender has locked. Makes its cursor where it is missing."""
    cursor, _created = Cursor.objects.get_or_create(
        session=session, defaults={"space_id": session.space_id, "agent_id": session.agent_id}
    )
    # It never falls behind the position: what was looked at stays looked at (D2), also after a rewind.
    watermark = max(cursor.position, min(session.terminal_seq, _held_from(session) - 1))
    if watermark == cursor.watermark:
        return
    changes: dict[str, Any] = {"watermark": watermark}
    if cursor.lag == 0:
        changes["due_since"] = timezone.now()
    if _fills_a_window(session, after=cursor.position, upto=watermark):
        # Newer than a pass that is under way, which does not see these: the request outlives it.
        changes["requested_at"] = timezone.now()
    Cursor.objects.filter(pk=cursor.pk).update(**changes)


def _held_from(session: Session) -> int:
    """The first message that the model has not seen yet and that will change in place; else one past the last."""
    first = Message.objects.undelivered().filter(session=session).order_by("seq").values_list("seq", flat=True).first()
    return first if first is not None else session.last_seq + 1


def _fills_a_window(session: Session, *, after: int, upto: int) -> bool:
    """Whether more waits than one pass shows: then it need not wait for the next tick (D22)."""
    speech = Message.objects.speech().filter(session=session, seq__gt=after, seq__lte=upto)
    limit = settings.AGENTMEMORY_MESSAGES_PER_PASS
    return len(speech.values_list("seq")[:limit]) >= limit
