"""Transcripts: appended under the session's lock, numbered without gaps, never renumbered (R1 to R7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone
from django.utils.encoding import force_bytes

from agentmemory import signals, speech
from agentmemory.errors import Invalid, NotFound, UidConflict
from agentmemory.models import Message, MessageEdge, Session
from agentmemory.services import digests, limits, redaction

Guard = Callable[[Session], None]
"""Called within the writing transaction, with the locked session; it raises when the write may not go on."""

UID_LENGTH = 200


@dataclass(frozen=True, kw_only=True)
class NewMessage:
    """A message as it is received. `ends_turn` is for formats without `result` messages (R6)."""

    uid: str
    type: str
    content: str | list[Any]
    occurred_at: datetime | None = None
    delivery: str = Message.Delivery.CONSUMED
    supersedes: Sequence[str] = ()
    parent_tool_use_id: str = ""
    subtype: str = ""
    is_error: bool = False
    ends_turn: bool = False
    digest: str = ""
    """Of the content as received, where it was cleaned at another door; see `received`."""


@dataclass(frozen=True, kw_only=True)
class Appended:
    """What an append did: new messages, known ones, and where the session stands after it."""

    accepted: int
    duplicates: int
    last_seq: int
    terminal_seq: int
    redacted: Mapping[str, int] = field(default_factory=dict)


@transaction.atomic
def append(
    *,
    session: Session,
    messages: Sequence[NewMessage],
    guard: Guard | None = None,
    said_at: datetime | None = None,
) -> Appended:
    """Append what is new of `messages`, in their order, and note what they say about others (R1 to R6).

    A message whose uid and content are known is a duplicate, and changes nothing but, for an importer, where a turn
    ends. `said_at` is when the newest was said, where that is not now: a session is quiet from then on (R6). Raises
    `UidConflict`, `Invalid`, and what `guard` raises; then nothing is written. The number of queries does not depend
    on the number of messages.
    """
    for message in messages:
        _check(message)
    session = lock(session.pk)
    permit(session, guard)
    known = {
        row.uid: row
        for row in Message.objects.filter(session=session, uid__in={m.uid for m in messages}).only(
            "uid", "type", "digest", "seq", "ends_turn"
        )
    }
    fresh: list[Message] = []
    ended = _note_turn_ends(session, known, messages)
    for message in messages:
        row = known.get(message.uid)
        if row is None:
            known[message.uid] = row = _row(session, message, seq=session.last_seq + len(fresh) + 1)
            fresh.append(row)
        elif row.type != message.type or not same_content(row.digest, message.content):
            raise UidConflict(message.uid)
    replaced = _apply_edges(session, fresh, messages)
    Message.objects.bulk_create(fresh)
    if fresh:
        signals.messages_appended.send(Session, session=session, messages=fresh, guard=guard)
    _advance(session, fresh, ended, said_at=said_at or timezone.now(), replaced=replaced)
    return Appended(
        accepted=len(fresh),
        duplicates=len(messages) - len(fresh),
        last_seq=session.last_seq,
        terminal_seq=session.terminal_seq,
        redacted=_total(fresh),
    )


@transaction.atomic
def set_delivery(*, session: Session, uid: str, delivery: str, guard: Guard | None = None) -> Message:
    """Change what became of a user message, in place (R4). Raises `Invalid`, `NotFound`."""
    if delivery not in Message.Delivery.values:
        raise Invalid(f"One of {', '.join(Message.Delivery.values)}.", field="delivery")
    session = lock(session.pk)
    if guard is not None:
        guard(session)
    message = named(session, uid)
    if message is None:
        raise NotFound("There is no such message.")
    if message.type != Message.Type.USER:
        raise Invalid("Only user messages are delivered.", field="delivery")
    message.delivery = delivery
    message.save(update_fields=["delivery"])
    tell_changed(session, [{"uid": uid, "seq": message.seq, "delivery": delivery}])
    signals.turn_completed.send(Session, session=session)
    return message


@transaction.atomic
def finish(*, session_id: int, now: datetime | None = None) -> None:
    """End the turn that a quiet or complete session left open, at its last message (R6).

    With `now`, only if the session is quiet still: what came since it was found to be so belongs to an open turn.
    """
    session = lock(session_id)
    if now is None or session.quiet_since <= _quiet_before(now):
        finish_open(session)


def quiet_sessions(*, now: datetime, limit: int = 500) -> list[int]:
    """Ids of sessions whose tail waits to be finished: nothing came for `AGENTMEMORY_IDLE_AFTER` seconds (R6)."""
    quiet = Session.objects.unfinished().filter(quiet_since__lte=_quiet_before(now)).order_by("quiet_since")
    return list(quiet.values_list("pk", flat=True)[:limit])


def _quiet_before(now: datetime) -> datetime:
    return now - timedelta(seconds=settings.AGENTMEMORY_IDLE_AFTER)


def same_content(digest: str, content: object) -> bool:
    """Whether `content` is the content that was received when `digest` was made (R2)."""
    return any(digest == digests.content_digest(key=key, content=content) for key in _digest_keys())


def received(content: object) -> str:
    """The digest of a content as it was received, by which its repetition is known (R2). Raises `Invalid`."""
    return digests.content_digest(key=_digest_keys()[0], content=content)


def permit(session: Session, guard: Guard | None) -> None:
    """Ask whether the write may go on: the guard that came with it, or else whoever watches over the session."""
    if guard is not None:
        guard(session)
    else:
        signals.unguarded_write.send(Session, session=session)


def named(session: Session, uid: str) -> Message | None:
    """The message of this uid in the session, if there is one."""
    return Message.objects.filter(session=session, uid=uid).first() if limits.storable(uid) else None


def lock(pk: int) -> Session:
    """The session, locked until the open transaction ends: whatever is numbered in it waits here. Raises `NotFound`."""
    row = Session.objects.select_for_update(of=("self",), no_key=True).select_related("agent").filter(pk=pk).first()
    if row is None:
        raise NotFound("There is no such session.")
    return row


def _row(session: Session, message: NewMessage, *, seq: int) -> Message:
    clean = redaction.redact(message.content)
    text = speech.visible_text(clean.value)
    return Message(
        space_id=session.space_id,
        session=session,
        seq=seq,
        uid=message.uid,
        type=message.type,
        subtype=redaction.clean_text(message.subtype)[:100],
        content=clean.value,
        text=text,
        is_speech=speech.is_speech(
            type=message.type, subtype=message.subtype, text=text, parent_tool_use_id=message.parent_tool_use_id
        ),
        ends_turn=message.ends_turn or message.type == Message.Type.RESULT,
        delivery=message.delivery,
        is_error=message.is_error,
        parent_tool_use_id=redaction.clean_text(message.parent_tool_use_id)[:200],
        digest=message.digest or received(message.content),
        redactions=clean.counts,
        occurred_at=message.occurred_at,
    )


def _check(message: NewMessage) -> None:
    check_uids([message.uid], field="uid")
    check_uids(message.supersedes, field="supersedes")
    if message.type not in Message.Type.values:
        raise Invalid(f"One of {', '.join(Message.Type.values)}.", field="type")
    if message.delivery not in Message.Delivery.values:
        raise Invalid(f"One of {', '.join(Message.Delivery.values)}.", field="delivery")


def check_uids(uids: Sequence[str], *, field: str) -> None:
    """A uid is kept as it is, blanks around it too: it is a name that others gave."""
    for uid in uids:
        limits.text(uid, field=field, maximum=UID_LENGTH)
        if len(uid) > UID_LENGTH:
            raise Invalid(f"At most {UID_LENGTH} characters.", field=field)


def _digest_keys() -> list[bytes]:
    """The newest key first. Older ones keep their messages recognisable after a rotation of the secret key."""
    return [b"message-digest:" + force_bytes(key) for key in [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]]


def _note_turn_ends(session: Session, known: Mapping[str, Message], messages: Sequence[NewMessage]) -> list[int]:
    """Numbers of known messages of which it turned out since that they end their turn."""
    later = [known[m.uid].seq for m in messages if m.ends_turn and m.uid in known and not known[m.uid].ends_turn]
    if later:
        Message.objects.filter(session=session, seq__in=later).update(ends_turn=True)
        signals.turn_ended.send(Session, session=session, seqs=later)
    return later


def _apply_edges(session: Session, fresh: Sequence[Message], messages: Sequence[NewMessage]) -> int:
    """Note what new messages replace, and what was said before about messages that arrive only now (R5).

    Returns how many messages that were here already are replaced now.
    """
    by_uid = {row.uid: row for row in fresh}
    said = [(m.uid, target) for m in messages if m.uid in by_uid for target in m.supersedes if target != m.uid]
    MessageEdge.objects.bulk_create(
        [
            MessageEdge(
                space_id=session.space_id,
                session=session,
                kind=MessageEdge.Kind.SUPERSEDES,
                source_uid=source,
                target_uid=target,
            )
            for source, target in said
        ],
        ignore_conflicts=True,
    )
    waiting = MessageEdge.objects.filter(session=session, target_uid__in=by_uid).order_by("pk")
    for edge in waiting:
        _mark(by_uid[edge.target_uid], edge)
    replaced = {target: source for source, target in said if target not in by_uid}
    return _supersede(session, replaced)


def _mark(row: Message, edge: MessageEdge) -> None:
    if edge.kind == MessageEdge.Kind.SUPERSEDES:
        row.superseded_by = edge.source_uid
    else:
        row.retracted_at, row.retraction_reason = edge.created_at, edge.reason


def _supersede(session: Session, replaced: Mapping[str, str]) -> int:
    """Mark messages that are here already as replaced: `replaced` maps target to source. Returns how many."""
    rows = list(Message.objects.filter(session=session, uid__in=replaced, superseded_by="")) if replaced else []
    for row in rows:
        row.superseded_by = replaced[row.uid]
    Message.objects.bulk_update(rows, ["superseded_by"])
    tell_gone(session, [row.uid for row in rows], "superseded")
    tell_changed(session, [{"uid": r.uid, "seq": r.seq, "superseded_by": r.superseded_by} for r in rows])
    return len(rows)


def _advance(
    session: Session, fresh: Sequence[Message], ended: Sequence[int], *, said_at: datetime, replaced: int
) -> None:
    if not fresh and not ended:
        return
    before, empty = session.terminal_seq, not session.last_seq
    session.last_seq += len(fresh)
    session.terminal_seq = max([before, *ended, *(row.seq for row in fresh if row.ends_turn)])
    if fresh:
        # Files are imported in any order: an older one does not make a session quiet that has just spoken.
        session.quiet_since = said_at if empty else max(session.quiet_since, said_at)
    save(session, ["last_seq", "terminal_seq", "quiet_since"])
    if session.completed_at is not None:
        finish_open(session)
    elif session.terminal_seq > before or replaced:
        signals.turn_completed.send(Session, session=session)


def finish_open(session: Session) -> None:
    """End the turn that the locked session has open, at its last message (R6), and tell that it may be distilled."""
    if session.terminal_seq < session.last_seq:
        session.terminal_seq = session.last_seq
        save(session, ["terminal_seq"])
        signals.turn_ended.send(Session, session=session, seqs=[session.last_seq])
    signals.turn_completed.send(Session, session=session)


def tell_gone(session: Session, uids: Sequence[str], reason: str) -> None:
    """Tell those who made something of these messages that they no longer stand (D23)."""
    if uids:
        signals.messages_gone.send(Session, session=session, uids=list(uids), reason=reason)


def tell_changed(session: Session, changes: list[dict[str, Any]]) -> None:
    """Tell those who follow the session what became of messages that they know (S10)."""
    if changes:
        signals.messages_changed.send(Session, session=session, changes=changes)


def save(session: Session, fields: Sequence[str]) -> None:
    """Save these fields of the locked session, and that it changed now."""
    session.updated_at = timezone.now()
    session.save(update_fields=[*fields, "updated_at"])


def _total(rows: Sequence[Message]) -> dict[str, int]:
    total: dict[str, int] = {}
    for row in rows:
        for kind, count in row.redactions.items():
            total[kind] = total.get(kind, 0) + count
    return total
