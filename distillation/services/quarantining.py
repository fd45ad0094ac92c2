"""Messages that fail alone: left out, visibly, so that the position goes on; tried again when released (D20)."""

from __future__ import annotations

from distillation import windows
from distillation.models import Cursor, Quarantine
from distillation.services import reading
from sessions_exec.models.webhooks import Event
from sessions_exec.services import announcing


def hold(cursor: Cursor, window: windows.Window, *, error: str) -> None:
    """Leave out the one message of a fenced cursor's window, and go on behind it with a full window."""
    for message in window.shown:
        Quarantine.objects.update_or_create(
            cursor=cursor,
            seq=message.seq,
            defaults={
                "space_id": cursor.space_id,
                "agent_id": cursor.agent_id,
                "uid": message.uid,
                "state": Quarantine.State.HELD,
                "failures": cursor.single_failures + 1,
                "error": error,
            },
        )
        _tell(cursor, message.seq, message.uid, failures=cursor.single_failures + 1)
    watermark = max(cursor.watermark, window.end)
    Cursor.objects.filter(pk=cursor.pk, epoch=cursor.epoch, position=cursor.position).update(
        position=window.end,
        watermark=watermark,
        failures=0,
        window_failures=0,
        single_failures=0,
        window_limit=None,
        next_attempt_at=None,
        due_since=reading.oldest_turn(cursor.session_id, after=window.end, upto=watermark),
    )


def settle(cursor: Cursor, seq: int) -> int | None:
    """A released message was distilled. The next released one of its session, if there is one."""
    Quarantine.objects.filter(cursor=cursor, seq=seq).update(state=Quarantine.State.SETTLED)
    return _next_released(cursor)


def hold_again(cursor: Cursor, seq: int, *, error: str) -> None:
    """A released message has failed again: it is held as before, after this one attempt."""
    held = Quarantine.objects.filter(cursor=cursor, seq=seq)
    held.update(state=Quarantine.State.HELD, error=error)
    for uid, failures in held.values_list("uid", "failures"):
        _tell(cursor, seq, uid, failures=failures)
    Cursor.objects.filter(pk=cursor.pk).update(retry_seq=_next_released(cursor), last_error=error)


def _next_released(cursor: Cursor) -> int | None:
    released = Quarantine.objects.filter(cursor=cursor, state=Quarantine.State.RELEASED)
    return released.order_by("seq").values_list("seq", flat=True).first()


def _tell(cursor: Cursor, seq: int, uid: str, *, failures: int) -> None:
    told = {"agent": cursor.agent.handle, "session": cursor.session.name, "uid": uid, "seq": seq, "failures": failures}
    announcing.announce(Event.MESSAGE_QUARANTINED, space_id=cursor.space_id, data=told)
