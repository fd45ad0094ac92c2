"""What passes, cursors and quarantines keep of what is erased for good goes with it; what was paid stays on record."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Q, QuerySet
from django.dispatch import receiver
from django.utils import timezone

from agentmemory import signals
from agentmemory.models import Agent, MemoryEvent, MemorySource, Session
from agentmemory.services import activity, erasing
from agentmemory.services.erasing import Counts
from distillation.models import Cursor, DistillationPass, Quarantine
from distillation.services import contexts
from distillation.services.passes import ERASED

# Passes that wrote one of the memories, refused a candidate of its key, or read a message that it rests on.
_CONCERNED = """
SELECT p.id FROM distillation_distillationpass AS p WHERE p.space_id = ANY(%(spaces)s) AND (
    p.id = ANY(%(passes)s)
    OR EXISTS (SELECT FROM jsonb_array_elements(p.written) AS e WHERE e->>'memory' = ANY(%(memories)s))
    OR EXISTS (SELECT FROM jsonb_array_elements(p.refused) AS e WHERE e->>'key' = ANY(%(keys)s))
    OR EXISTS (
        SELECT FROM agentmemory_memorysource AS s WHERE s.memory_id = ANY(%(memories)s::uuid[])
            AND s.session_id = p.session_id AND s.seq > p.start AND s.seq <= p."end"
    )
)
"""


@receiver(signals.memories_erased)
def empty_for_memories(sender: object, *, memory_ids: Sequence[UUID], counts: Counts, **_: Any) -> None:
    """Empty every pass that has to do with these memories: its answer says what they said."""
    events = MemoryEvent.objects.filter(pgh_obj_id__in=memory_ids)
    known = list(events.values_list("space", "key", "pgh_context__author").distinct())
    cited = MemorySource.objects.filter(memory__in=memory_ids, pass_id__isnull=False)
    values = {
        "spaces": list({space for space, _, _ in known}),
        "memories": [str(pk) for pk in memory_ids],
        "keys": list({key for _, key, _ in known}),
        "passes": [*cited.values_list("pass_id", flat=True), *_passes_among(author for _, _, author in known)],
    }
    with connection.cursor() as cursor:
        cursor.execute(_CONCERNED, values)
        found = [pk for (pk,) in cursor.fetchall()]
    empty(DistillationPass.objects.filter(pk__in=found), counts)


@receiver(signals.messages_erased)
def empty_for_messages(
    sender: object,
    *,
    session: Session,
    uids: Sequence[str],
    seqs: Sequence[int],
    whole: bool,
    counts: Counts,
    **_: Any,
) -> set[UUID]:
    """Empty the passes that read these messages, stop the one that reads them now, and forget their failures.

    Returns the memories that may have words of them in their context.
    """
    ids = _that_read(session, seqs, whole=whole)
    empty(DistillationPass.objects.filter(pk__in=ids), counts)
    cursors = Cursor.objects.filter(session=session)
    # Whoever has the words before it now finds the fence raised, and writes nothing of them.
    for cursor in cursors:
        Cursor.objects.revoke(cursor.pk)
    counts["distillation_cursor"] += cursors.exclude(last_error="").update(last_error=ERASED, attempts=0)
    held = Quarantine.objects.filter(cursor__session=session)
    held = held if whole else held.filter(uid__in=uids)
    for model, rows in ((Quarantine, held), (Cursor, cursors)):
        counts["agentmemory_activity"] += activity.forget(model, rows.values_list("pk", flat=True))
    erasing.delete(held, counts)
    near = contexts.beside(session, uids)
    if whole:
        DistillationPass.objects.filter(pk__in=ids).update(session_name=ERASED)
        erasing.delete(cursors, counts)
    return near


@receiver(signals.passes_erased)
def empty_passes(sender: object, *, pass_ids: Collection[int], counts: Counts, **_: Any) -> None:
    empty(DistillationPass.objects.filter(pk__in=pass_ids), counts)


@receiver(signals.agent_leaving)
def leave(sender: object, *, agent: Agent, heir: Agent | None, counts: Counts, **_: Any) -> None:
    """Hand cursors, passes and quarantines over to the heir, or erase what is left of them."""
    for model in (Quarantine, DistillationPass, Cursor):
        rows: QuerySet[Any] = model._default_manager.filter(agent=agent)
        if heir is not None:
            rows.update(agent=heir)
        else:
            erasing.delete(rows, counts)


def empty(rows: QuerySet[DistillationPass], counts: Counts) -> None:
    """Take all words out of passes. Ids, tokens and what they cost stay; one that is under way has failed."""
    now = timezone.now()
    found = list(rows.only("written", "refused", "error", "outcome"))
    for row in found:
        row.answer = ""
        row.written = [{**entry, "key": ""} for entry in row.written]
        row.refused = [{"key": "", "reason": ERASED} for _ in row.refused]
        row.error = ERASED if row.error else ""
        if row.outcome == DistillationPass.Outcome.RUNNING:
            row.outcome, row.failure, row.finished_at = DistillationPass.Outcome.FAILED, ERASED, now
    fields = ["answer", "written", "refused", "error", "outcome", "failure", "finished_at"]
    DistillationPass.objects.bulk_update(found, fields, batch_size=erasing.AT_ONCE)
    ids = [row.pk for row in found]
    counts.once(DistillationPass._meta.db_table, ids)
    counts["agentmemory_activity"] += activity.forget(DistillationPass, ids)


def _that_read(session: Session, seqs: Sequence[int], *, whole: bool) -> list[int]:
    """Passes that were shown one of these messages; of a whole session, of earlier ones of its name too."""
    if whole:
        earlier = Q(session__isnull=True, session_name=session.name, agent=session.agent_id)
        rows = DistillationPass.objects.filter(Q(session=session) | earlier)
        return list(rows.values_list("pk", flat=True))
    wanted = set(seqs)
    shown = DistillationPass.objects.filter(session=session).values_list("pk", "shown")
    return [pk for pk, numbers in shown.iterator(chunk_size=1000) if wanted.intersection(numbers)]


def _passes_among(authors: Iterable[str | None]) -> list[int]:
    """The numbers of the passes that are named among those who wrote."""
    numbers = (str(author or "").removeprefix("pass:") for author in authors if str(author or "").startswith("pass:"))
    return [int(number) for number in numbers if number.isdigit()]
