"""What is taken out of a transcript again: retracted, rewound or deleted for good (R1, R5)."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction
from django.db.models import Max, OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce
from django.utils import timezone

from agentmemory import signals
from agentmemory.errors import NotFound
from agentmemory.models import Message, MessageEdge, Session
from agentmemory.services import limits, redaction, transcripts


@transaction.atomic
def retract(*, session: Session, uids: Sequence[str], reason: str = "") -> int:
    """Take messages back, by uid, those that have not arrived yet too (R5). Returns how many stand retracted now.

    Raises `Invalid` for a uid that no message can have.
    """
    transcripts.check_uids(uids, field="uids")
    reason = str(redaction.redact(reason).value)[:500]
    session = transcripts.lock(session.pk)
    MessageEdge.objects.bulk_create(
        [
            MessageEdge(
                space_id=session.space_id,
                session=session,
                kind=MessageEdge.Kind.RETRACTS,
                target_uid=uid,
                reason=reason,
            )
            for uid in dict.fromkeys(uids)
        ],
        ignore_conflicts=True,
    )
    standing = Message.objects.filter(session=session, uid__in=uids, retracted_at__isnull=True)
    gone = dict(standing.order_by("seq").values_list("uid", "seq"))
    standing.update(retracted_at=timezone.now(), retraction_reason=reason)
    transcripts.tell_gone(session, list(gone), reason or "retracted")
    transcripts.tell_changed(session, [{"uid": uid, "seq": seq, "retracted": True} for uid, seq in gone.items()])
    signals.turn_completed.send(Session, session=session)
    return len(gone)


@transaction.atomic
def rewind(*, session: Session, after_uid: str, guard: transcripts.Guard | None = None) -> int:
    """Remove every message after `after_uid`; numbers are never used again (R1). Returns how many went.

    Raises `NotFound`.
    """
    session = transcripts.lock(session.pk)
    transcripts.permit(session, guard)
    anchor = transcripts.named(session, after_uid)
    if anchor is None:
        raise NotFound("There is no such message.")
    removed = _remove(session, Message.objects.filter(session=session, seq__gt=anchor.seq), reason="rewound")
    if removed:
        transcripts.tell_changed(session, [{"removed_after": anchor.seq, "after_uid": after_uid, "removed": removed}])
    return removed


@transaction.atomic
def remove(*, session: Session, uids: Sequence[str], reason: str, guard: transcripts.Guard | None = None) -> int:
    """Delete single messages for good; their numbers are never used again (R1). Returns how many went.

    Memories that rest on them are reconciled (D23).
    """
    session = transcripts.lock(session.pk)
    transcripts.permit(session, guard)
    going = Message.objects.filter(session=session, uid__in=[uid for uid in uids if limits.storable(uid)])
    gone = list(going.order_by("seq").values_list("uid", "seq"))
    removed = _remove(session, going, reason=reason)
    transcripts.tell_changed(session, [{"uid": uid, "seq": seq, "removed": True} for uid, seq in gone])
    return removed


def _remove(session: Session, messages: QuerySet[Message], *, reason: str) -> int:
    uids = list(messages.values_list("uid", flat=True))
    transcripts.tell_gone(session, uids, reason)
    messages.delete()
    _stand_again(session, uids)
    left = Message.objects.filter(session=session)
    ends = left if session.completed_at is not None else left.filter(ends_turn=True)
    session.terminal_seq = ends.aggregate(seq=Max("seq"))["seq"] or 0
    transcripts.save(session, ["terminal_seq"])
    signals.turn_completed.send(Session, session=session)
    return len(uids)


def _stand_again(session: Session, gone: Sequence[str]) -> None:
    """Let what removed messages had replaced stand again, unless another one replaces it (R5)."""
    said = MessageEdge.objects.filter(session=session, kind=MessageEdge.Kind.SUPERSEDES)
    said.filter(source_uid__in=gone).delete()
    other = said.filter(target_uid=OuterRef("uid")).order_by("pk").values("source_uid")[:1]
    replaced = Message.objects.filter(session=session, superseded_by__in=gone)
    uids = list(replaced.values_list("uid", flat=True))
    replaced.update(superseded_by=Coalesce(Subquery(other), Value("")))
    standing = Message.objects.filter(session=session, uid__in=uids, superseded_by="", retracted_at__isnull=True)
    if found := list(standing.values_list("uid", flat=True)):
        signals.messages_returned.send(Session, session=session, uids=found)
