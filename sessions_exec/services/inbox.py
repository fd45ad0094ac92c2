"""Prompts that wait: admitted before anything is scheduled, promoted at boundaries, never gone (S4 to S6)."""

from __future__ import annotations

from typing import Any, cast

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from agentmemory.errors import Invalid, NotFound
from agentmemory.models import Message, Session
from agentmemory.services import limits, redaction, transcripts
from sessions_exec import faults, rules, signals
from sessions_exec.errors import Crowded, InputConflict
from sessions_exec.models import Input, SessionEvent
from sessions_exec.services import events

Type = SessionEvent.Type
State = Input.State
STEER, QUEUE = Input.Delivery.STEER, Input.Delivery.QUEUE

MOST_PENDING = 1_000
MOST_AT_ONCE = 100
# Nobody said it: it is no speech to distillation (D4).
CONTINUATION_SUBTYPE = "synthetic"


@transaction.atomic
def admit(
    *, session: Session, uid: str, prompt: str | list[Any], delivery: str = STEER, resume: bool = True
) -> tuple[Input, bool]:
    """Store a prompt, and whether it is new. With `resume` it is wanted to be run now.

    An exact retry (prompt as received, and delivery) gives the stored admission. Raises `InputConflict` for any other
    use of the id, `Invalid`, `Crowded`.
    """
    uid = limits.text(uid, field="id", maximum=transcripts.UID_LENGTH)
    _check(prompt, delivery)
    digest = transcripts.received(prompt)
    session = transcripts.lock(session.pk)
    stored = Input.objects.filter(session=session, uid=uid).first()
    if stored is not None:
        return _again(session, stored, prompt=prompt, delivery=delivery, resume=resume), False
    if Message.objects.filter(session=session, uid=uid).exists():
        raise InputConflict("A message has this id.")
    if Input.objects.pending().filter(session=session).count() >= MOST_PENDING:
        raise Crowded(f"{MOST_PENDING:,} inputs wait in this session already.")
    clean = redaction.redact(prompt)
    admitted = _store(
        session, uid=uid, prompt=clean.value, digest=digest, redactions=clean.counts, delivery=delivery, resume=resume
    )
    wake(session)
    return admitted, True


def admit_continuation(*, session: Session, uid: str, prompt: str, resume: bool) -> Input:
    """Admit the input of a recovery; one of an earlier recovery that nobody promoted is done with.

    Called within a transaction that has locked the session.
    """
    drop_continuations(session)
    digest = transcripts.received(prompt)
    kind = Input.Kind.CONTINUATION
    return _store(session, uid=uid, prompt=prompt, digest=digest, delivery=QUEUE, resume=resume, kind=kind)


def drop_continuations(session: Session) -> None:
    """Cancel what earlier recoveries left and nobody promoted: a later one has looked again."""
    for earlier in Input.objects.pending().filter(session=session, kind=Input.Kind.CONTINUATION):
        _cancel(session, earlier)


@transaction.atomic
def promote(*, session: Session, guard: transcripts.Guard, boundary: str) -> list[Input]:
    """Make waiting inputs messages of the session, in one transaction, and give them in their order.

    At a step: what a recovery left, then all that steers. When the session would go idle: the same, and where there
    is nothing of it, one that was queued. Raises what `guard` raises, `Invalid`.
    """
    if boundary not in rules.BOUNDARIES:
        raise Invalid(f"One of {', '.join(rules.BOUNDARIES)}.", field="boundary")
    session = transcripts.lock(session.pk)
    guard(session)
    chosen = _chosen(session, boundary)
    if not chosen:
        return []
    # First, so that their uids are no longer reserved: what is appended now is them.
    for seq, row in enumerate(chosen, start=session.last_seq + 1):
        row.state, row.seq, row.settled_at = State.PROMOTED, seq, timezone.now()
    Input.objects.bulk_update(chosen, ["state", "seq", "settled_at"])
    # Kept once: what becomes of the message becomes of the prompt.
    Input.objects.filter(pk__in=[row.pk for row in chosen]).update(prompt=None)
    appended = transcripts.append(session=session, messages=[_message(row) for row in chosen], guard=guard)
    if appended.accepted != len(chosen):
        raise InputConflict("A message has the id of an input.")
    entries = [(Type.INPUT_PROMOTED, {**_name(row), "uid": row.uid, "seq": row.seq}) for row in chosen]
    events.append(session=session, entries=entries)
    faults.reach("promote.before_commit")
    return chosen


@transaction.atomic
def flip(*, session: Session, uid: str, delivery: str) -> Input:
    """Let a waiting input steer, or queue. Raises `InputConflict` where it waits no longer, `NotFound`, `Invalid`."""
    if delivery not in Input.Delivery.values:
        raise Invalid(f"One of {', '.join(Input.Delivery.values)}.", field="delivery")
    session = transcripts.lock(session.pk)
    row = _find(session, uid)
    if row.state != State.PENDING:
        raise InputConflict(f"The input was {row.state} already.")
    wanted = rules.wish_after_flip(wanted=row.resume, delivery=delivery)
    Input.objects.pending().filter(pk=row.pk).update(delivery=delivery, resume=wanted)
    wake(session)
    row.refresh_from_db()
    return row


@transaction.atomic
def cancel(*, session: Session, uid: str) -> Input:
    """Take a waiting input back; again is no error. Raises `InputConflict` where it was promoted, `NotFound`."""
    session = transcripts.lock(session.pk)
    row = _find(session, uid)
    if row.state == State.PROMOTED:
        raise InputConflict("The input was promoted already.")
    if row.state == State.PENDING:
        _cancel(session, row)
    return row


def pending(*, session: Session) -> QuerySet[Input]:
    """What waits in a session, in the order of admission."""
    return Input.objects.pending().filter(session=session)


def wake(session: Session) -> None:
    """Tell whoever may run it that inputs are wanted in a session that nobody holds.

    Where somebody holds it nothing is told: they find the inputs at their next boundary, or at the latest when they
    release. Called within a transaction that has locked the session.
    """
    if Input.objects.stranded().filter(session=session).exists():
        signals.session_wanted.send(Session, session_id=session.pk)


def sweep() -> int:
    """Tell again of every session in which inputs are wanted and nobody is there (S6). Returns how many."""
    found = Input.objects.stranded().order_by().values_list("session", flat=True).distinct()[:MOST_PENDING]
    for session_id in found:
        signals.session_wanted.send(Session, session_id=session_id)
    return len(found)


def _check(prompt: object, delivery: str) -> None:
    if not isinstance(prompt, str | list) or not prompt or (isinstance(prompt, str) and not prompt.strip()):
        raise Invalid("A text or a list of blocks, not empty.", field="prompt")
    if delivery not in Input.Delivery.values:
        raise Invalid(f"One of {', '.join(Input.Delivery.values)}.", field="delivery")


def _again(session: Session, stored: Input, *, prompt: object, delivery: str, resume: bool) -> Input:
    """The stored admission, if this is its exact retry. A wish that came with the retry counts anew."""
    same = transcripts.same_content(stored.digest, prompt)
    if not rules.is_retry(kind=stored.kind, admitted_as=stored.admitted_delivery, delivery=delivery, same_prompt=same):
        raise InputConflict("An input of this id is here already, with another prompt or delivery.")
    if resume and Input.objects.pending().filter(pk=stored.pk, resume=False).update(resume=True):
        stored.resume = True
        wake(session)
    return stored


def _store(session: Session, *, delivery: str, **values: Any) -> Input:
    row = Input.objects.create(
        space_id=session.space_id, session=session, delivery=delivery, admitted_delivery=delivery, **values
    )
    data = {**_name(row), "kind": row.kind, "resume": row.resume}
    events.append(session=session, entries=[(Type.INPUT_ADMITTED, data)])
    return row


def _chosen(session: Session, boundary: str) -> list[Input]:
    waiting = [rules.Waiting(*each) for each in pending(session=session).values_list("pk", "kind", "delivery")]
    keys = rules.due(waiting, boundary=boundary, most=MOST_AT_ONCE)
    rows = Input.objects.in_bulk(keys)
    return [rows[key] for key in keys]


def _message(row: Input) -> transcripts.NewMessage:
    return transcripts.NewMessage(
        uid=row.uid,
        type=Message.Type.USER,
        content=cast("str | list[Any]", row.prompt),
        digest=row.digest,
        subtype=CONTINUATION_SUBTYPE if row.kind == Input.Kind.CONTINUATION else "",
    )


def _find(session: Session, uid: str) -> Input:
    row = Input.objects.filter(session=session, uid=uid).first()
    if row is None:
        raise NotFound("There is no such input.")
    return row


def _cancel(session: Session, row: Input) -> None:
    row.state, row.settled_at, row.prompt = State.CANCELLED, timezone.now(), None
    row.save(update_fields=["state", "settled_at", "prompt"])
    events.append(session=session, entries=[(Type.INPUT_CANCELLED, _name(row))])


def _name(row: Input) -> dict[str, Any]:
    return {"id": row.uid, "delivery": row.delivery}
