"""What happens to a transcript, as its log tells it; and who may write there while somebody runs the session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import connection
from django.dispatch import receiver

from agentmemory import signals
from agentmemory.errors import UidConflict
from agentmemory.models import Message, Session
from sessions_exec.errors import LeaseHeld
from sessions_exec.models import Execution, Input, SessionEvent
from sessions_exec.models.log import DELETED_SESSION
from sessions_exec.services import events
from sessions_exec.services.executions import Held

Type = SessionEvent.Type


@receiver(signals.unguarded_write)
def refuse_while_run(sender: object, *, session: Session, **_: Any) -> None:
    """While a live execution stands nobody writes without it (S1). Raises `LeaseHeld`."""
    execution = Execution.objects.live().filter(pk=session.pk).first()
    if execution is not None:
        raise LeaseHeld("Somebody runs this session.", holder=execution.holder, expires_at=execution.expires_at)


@receiver(signals.session_created)
def tell_created(sender: object, *, session: Session, **_: Any) -> None:
    events.append(session=session, entries=[(Type.SESSION_CREATED, {"id": session.name})])


@receiver(signals.messages_appended)
def tell_appended(sender: object, *, session: Session, messages: Sequence[Message], guard: object, **_: Any) -> None:
    """Note each message, and each turn that one ends; and which one the execution that wrote them is at (S7)."""
    _keep_reserved(session, messages)
    entries = [entry for message in messages for entry in _appended(message)]
    events.append(session=session, entries=entries)
    answers = [m.uid for m in messages if m.type == Message.Type.ASSISTANT and not m.parent_tool_use_id]
    if answers and isinstance(guard, Held):
        Execution.objects.set_while_held(session.pk, epoch=guard.epoch, assistant_uid=answers[-1])


@receiver(signals.messages_changed)
def tell_changed(sender: object, *, session: Session, changes: Sequence[dict[str, Any]], **_: Any) -> None:
    events.append(session=session, entries=[(Type.MESSAGE_CHANGED, change) for change in changes])


@receiver(signals.turn_ended)
def tell_turns(sender: object, *, session: Session, seqs: Sequence[int], **_: Any) -> None:
    events.append(session=session, entries=[(Type.TURN_ENDED, {"seq": seq, "is_error": False}) for seq in seqs])


@receiver(signals.session_leaving)
def let_go(sender: object, *, session: Session, **_: Any) -> None:
    """Let the log of this session be deleted with it, by this transaction alone (S10)."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config(%s, %s, true)", [DELETED_SESSION, str(session.pk)])


def _appended(message: Message) -> list[tuple[Type, dict[str, Any]]]:
    told = {
        name: getattr(message, name)
        for name in ("seq", "uid", "type", "subtype", "delivery", "is_error", "parent_tool_use_id")
    }
    entries: list[tuple[Type, dict[str, Any]]] = [(Type.MESSAGE_APPENDED, told)]
    if message.ends_turn:
        entries.append((Type.TURN_ENDED, {"seq": message.seq, "uid": message.uid, "is_error": message.is_error}))
    return entries


def _keep_reserved(session: Session, messages: Sequence[Message]) -> None:
    """The id of a waiting input is its message's: no other message may take it, or it could not be promoted."""
    taken = Input.objects.pending().filter(session=session, uid__in=[message.uid for message in messages]).first()
    if taken is not None:
        raise UidConflict(taken.uid)
