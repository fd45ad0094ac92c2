"""What operators do with distillation. Each act is put on record with who and why, in its own transaction (D24)."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import F, OuterRef, Subquery
from django.utils import timezone

from agentmemory.errors import Invalid, NotFound
from agentmemory.models import Provider, Session
from agentmemory.services import activity
from distillation.models import Cursor, DistillationPass, Quarantine
from distillation.querysets import CursorQuerySet
from distillation.services import coordinator, reading

DISTIL_AGAIN = "distil again"
MOST_CLEARED = 10_000


def run_now(*, cursor_id: int, operator: str, reason: str) -> None:
    """Have a session distilled now, whatever it waits for. Raises `NotFound`."""
    with transaction.atomic():
        cursor = _locked(cursor_id)
        coordinator.request(session=cursor.session, force=True)
        _record("run now", cursor, operator, reason)


def clear_backoff(*, cursor_id: int, operator: str, reason: str) -> None:
    """Forget a session's failures, so that it is due again at the next tick. Raises `NotFound`."""
    with transaction.atomic():
        cursor = _locked(cursor_id)
        Cursor.objects.filter(pk=cursor_id).update(**_fresh(), enqueued_at=None)
        _record("clear backoff", cursor, operator, reason, failures=cursor.failures)


def after_failures(provider: Provider) -> CursorQuerySet:
    """Sessions that wait after a failure of which this provider was part: the newest pass over them asked it."""
    newest = DistillationPass.objects.filter(cursor=OuterRef("pk")).order_by("-pk").values("provider")[:1]
    waiting = Cursor.objects.behind().filter(next_attempt_at__gt=timezone.now())
    return waiting.alias(asked=Subquery(newest)).filter(asked=provider.pk)


def clear_backoffs(*, provider_id: int, operator: str, reason: str) -> int:
    """Forget the failures of all sessions that wait after this provider's, and ask for them. Returns how many.

    At most `MOST_CLEARED`, and not those that somebody else has in hand. Raises `NotFound`.
    """
    with transaction.atomic():
        provider = Provider.objects.filter(pk=provider_id).first()
        if provider is None:
            raise NotFound("There is no such provider.")
        rows = after_failures(provider).select_for_update(of=("self",), skip_locked=True, no_key=True).order_by("pk")
        ids = list(rows.values_list("pk", flat=True)[:MOST_CLEARED])
        Cursor.objects.filter(pk__in=ids).update(**_fresh(), enqueued_at=None, requested_at=timezone.now())
        activity.record(
            "clear backoff",
            who=f"operator:{operator}",
            target=provider,
            reason=reason,
            detail={"sessions": len(ids)},
        )
    return len(ids)


def distil_again(*, cursor_id: int, seq: int, operator: str, reason: str) -> None:
    """Go back to before message `seq` and distil from it again: keys update, nothing is doubled.

    A pass that runs loses its lease. Raises `NotFound`, and `Invalid` for a place that was not distilled yet.
    """
    with transaction.atomic():
        cursor = _locked(cursor_id)
        if not 1 <= seq <= cursor.position:
            raise Invalid(f"Only messages 1 to {cursor.position} were distilled.", field="seq")
        _move(cursor, position=seq - 1)
        newest = DistillationPass.objects.filter(cursor=cursor).order_by("-pk").values_list("pk", flat=True).first()
        place = {"position": cursor.position, "to": seq - 1, "after_pass": newest or 0}
        _record(DISTIL_AGAIN, cursor, operator, reason, **place)


def skip_to(*, cursor_id: int, seq: int, operator: str, reason: str) -> None:
    """Leave out what lies before message `seq`: the next pass begins with it. Raises `NotFound`, `Invalid`."""
    with transaction.atomic():
        cursor = _locked(cursor_id)
        if not cursor.position < seq <= cursor.watermark + 1:
            raise Invalid(
                f"Only messages {cursor.position + 1} to {cursor.watermark + 1} can be skipped to.", field="seq"
            )
        _move(cursor, position=seq - 1)
        _record("skip to", cursor, operator, reason, position=cursor.position, to=seq - 1)


def release_lease(*, cursor_id: int, operator: str, reason: str) -> None:
    """Take the lease from whoever holds it, by raising the fence: its pass writes nothing. Raises `NotFound`."""
    with transaction.atomic():
        cursor = _locked(cursor_id)
        Cursor.objects.revoke(cursor_id)
        _record("release lease", cursor, operator, reason, holder=cursor.holder, epoch=cursor.epoch)


def release_quarantine(*, quarantine_id: int, operator: str, reason: str) -> None:
    """Have a quarantined message tried again, alone, at once. Raises `NotFound`, and `Invalid` unless it is held."""
    with transaction.atomic():
        quarantine = _decided(quarantine_id, Quarantine.State.RELEASED, operator, reason)
        Cursor.objects.filter(pk=quarantine.cursor_id).update(
            retry_seq=quarantine.seq, requested_at=timezone.now(), next_attempt_at=None, enqueued_at=None
        )


def dismiss_quarantine(*, quarantine_id: int, operator: str, reason: str) -> None:
    """Leave a quarantined message out for good. Raises `NotFound`, and `Invalid` unless it is held."""
    with transaction.atomic():
        _decided(quarantine_id, Quarantine.State.DISMISSED, operator, reason)


def hold_quarantine(*, quarantine_id: int, operator: str, reason: str) -> None:
    """Have a message that was left out for good wait for a decision again. Raises `NotFound`, `Invalid`."""
    with transaction.atomic():
        quarantine = _locked_quarantine(quarantine_id)
        if quarantine.state != Quarantine.State.DISMISSED:
            raise Invalid(f"It is {quarantine.get_state_display()}.", field="state")
        quarantine.state, quarantine.decided_by, quarantine.decided_reason = Quarantine.State.HELD, "", ""
        quarantine.decided_at = None
        _save_decision(quarantine, operator, reason)


def _locked(cursor_id: int) -> Cursor:
    """The cursor, its session locked first as everywhere."""
    Session.objects.select_for_update(of=("self",), no_key=True).filter(cursor=cursor_id).first()
    rows = Cursor.objects.select_for_update(of=("self",)).select_related("session", "space")
    cursor = rows.filter(pk=cursor_id).first()
    if cursor is None:
        raise NotFound("There is no such cursor.")
    return cursor


def _move(cursor: Cursor, *, position: int) -> None:
    Cursor.objects.filter(pk=cursor.pk).update(
        position=position,
        due_since=reading.oldest_turn(cursor.session_id, after=position, upto=cursor.watermark),
        # Whoever reads the old window now finds the fence raised.
        epoch=F("epoch") + 1,
        holder="",
        expires_at=None,
        attempts=0,
        enqueued_at=None,
        requested_at=timezone.now(),
        **_fresh(),
    )


def _fresh() -> dict[str, Any]:
    return {
        "failures": 0,
        "window_failures": 0,
        "single_failures": 0,
        "window_limit": None,
        "next_attempt_at": None,
    }


def _decided(quarantine_id: int, state: str, operator: str, reason: str) -> Quarantine:
    quarantine = _locked_quarantine(quarantine_id)
    if quarantine.state != Quarantine.State.HELD:
        raise Invalid(f"It is {quarantine.get_state_display()} already.", field="state")
    quarantine.state, quarantine.decided_by, quarantine.decided_reason = state, f"operator:{operator}", reason[:500]
    quarantine.decided_at = timezone.now()
    _save_decision(quarantine, operator, reason)
    return quarantine


def _locked_quarantine(quarantine_id: int) -> Quarantine:
    rows = Quarantine.objects.select_for_update(of=("self",)).select_related("cursor", "space")
    quarantine = rows.filter(pk=quarantine_id).first()
    if quarantine is None:
        raise NotFound("There is no such quarantine.")
    return quarantine


def _save_decision(quarantine: Quarantine, operator: str, reason: str) -> None:
    quarantine.save(update_fields=["state", "decided_by", "decided_reason", "decided_at"])
    activity.record(
        f"quarantine {quarantine.state}",
        who=f"operator:{operator}",
        target=quarantine,
        reason=reason,
        space=quarantine.space,
        detail={"uid": quarantine.uid, "seq": quarantine.seq},
    )


def _record(act: str, cursor: Cursor, operator: str, reason: str, **detail: Any) -> None:
    activity.record(
        act,
        who=f"operator:{operator}",
        target=cursor,
        reason=reason,
        space=cursor.space,
        detail=detail,
        name=cursor.session.name,
    )
