"""A pass's stored answer applied once more: first as a plan, then for good (D25).

The plan is the act itself, taken back before it ends: what it tells cannot differ from what would be done. Applying
the answer again gives the same rows, so that a second time changes nothing. No call is made, no position moves, and
the rules are those of every pass: curated memories, and those that a person has edited or withdrawn, are left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from agentmemory.errors import Invalid, NotFound
from agentmemory.models import Memory, Session
from agentmemory.services import activity, distilled
from distillation import answers, windows
from distillation.errors import NothingWritten
from distillation.models import Cursor, DistillationPass
from distillation.services import reading, writing

_ENDED = (DistillationPass.Outcome.APPLIED, DistillationPass.Outcome.EMPTY)


@dataclass(frozen=True, kw_only=True)
class Planned:
    """What becomes of one candidate: `created`, `updated`, `known` or `refused`, with the texts before and after."""

    action: str
    key: str
    memory_id: str = ""
    before: str = ""
    after: str = ""
    reason: str = ""


def obstacle(row: DistillationPass) -> str:
    """Why a pass cannot be applied again; empty if it can."""
    if row.outcome not in _ENDED:
        return "Only a pass that ended well can be applied again: what failed is distilled again by Run now."
    if row.session_id is None or row.cursor_id is None:
        return "Its session is gone."
    return "" if row.answer else "Its answer is no longer kept."


def plan(*, pass_id: int) -> list[Planned]:
    """What applying the answer again would do now, without doing it. Raises `NotFound`, `Invalid`."""
    with transaction.atomic():
        planned = _apply(_locked(pass_id))
        transaction.set_rollback(True)
    return planned


@transaction.atomic
def carry_out(*, pass_id: int, operator: str, reason: str) -> list[Planned]:
    """Apply the answer again and put it on record. What it did, as `plan` tells it. Raises `NotFound`, `Invalid`."""
    row = _locked(pass_id)
    planned = _apply(row)
    activity.record(
        "apply again",
        who=f"operator:{operator}",
        target=row,
        reason=reason,
        space=row.space,
        detail=counts(planned),
    )
    return planned


def counts(planned: Sequence[Planned]) -> dict[str, int]:
    """How many candidates became what."""
    found: dict[str, int] = {}
    for each in planned:
        found[each.action] = found.get(each.action, 0) + 1
    return found


def _locked(pass_id: int) -> DistillationPass:
    """The pass, its session locked first as everywhere: no other pass writes over this one meanwhile."""
    Session.objects.select_for_update(no_key=True).filter(passes=pass_id).first()
    rows = DistillationPass.objects.select_related("space", "agent", "agent__space", "session", "cursor")
    row = rows.filter(pk=pass_id).first()
    if row is None:
        raise NotFound("There is no such pass.")
    if problem := obstacle(row):
        raise Invalid(problem, field="outcome")
    return row


def _apply(row: DistillationPass) -> list[Planned]:
    cursor = row.cursor
    if cursor is None or row.session is None:
        raise Invalid("Its session is gone.", field="session")
    cursor.session, cursor.agent = row.session, row.agent
    cursor.session.agent = row.agent
    before = _standing(row)
    outcome = _written(cursor, row, reading.window_of(row))
    found = Memory.objects.in_bulk([entry["memory"] for entry in outcome.written])
    after = {str(pk): memory.content for pk, memory in found.items()}
    then = {entry["memory"]: entry["version"] for entry in row.written}
    return [
        *(_entry(entry, before.get(entry["key"]), after, then) for entry in outcome.written),
        *(Planned(action="refused", key=entry["key"], reason=entry["reason"]) for entry in outcome.refused),
    ]


def _written(cursor: Cursor, row: DistillationPass, window: windows.Window) -> writing.Written:
    try:
        return writing.write(cursor=cursor, row=row, window=window)
    except NothingWritten:
        return writing.Written(refused=row.refused)
    except answers.AnswerUnusable as error:
        raise Invalid(f"The stored answer cannot be read: {error}", field="answer") from error


def _standing(row: DistillationPass) -> dict[str, Memory]:
    """The agent's distilled memories of the answer's keys as they are now, by their key."""
    try:
        keys = {candidate.key.strip() for candidate in answers.parse(row.answer)}
    except answers.AnswerUnusable:
        return {}
    mine = Memory.objects.kept().filter(space=row.space, owner=row.agent, origin=Memory.Origin.DISTILLED)
    return {memory.key: memory for memory in mine.filter(key__in=keys)}


def _entry(entry: dict[str, Any], before: Memory | None, after: dict[str, str], then: dict[str, int]) -> Planned:
    known = entry["action"] == distilled.Action.KNOWN
    text = after.get(entry["memory"], "")
    return Planned(
        action=entry["action"],
        key=entry["key"],
        memory_id=entry["memory"],
        before=text if known else before.content if before else "",
        after=text,
        reason="" if known or before is None else _caution(before, then),
    )


def _caution(before: Memory, then: dict[str, int]) -> str:
    """What whoever changes this memory should know of it."""
    if before.withdrawn_at is not None:
        return f"it was withdrawn ({before.withdrawn_reason}) and comes back"
    if before.version > then.get(str(before.pk), before.version):
        return f"it was written again since this pass: it is at version {before.version}"
    return ""
