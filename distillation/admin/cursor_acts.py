"""What operators do with a session's distillation: each act asks for a reason, and is done by the service (D24)."""

from __future__ import annotations

from collections.abc import Sequence

from django import forms
from django.http import HttpRequest
from django.utils import timezone
from django.utils.safestring import SafeString

from agentmemory.admin.acts import Act, Asked, AskForm
from agentmemory.console import figures, goes
from distillation.models import Cursor
from distillation.services import attempts, operations, states


def _run_now(cursor: Cursor, asked: Asked) -> str:
    operations.run_now(cursor_id=cursor.pk, operator=asked.operator, reason=asked.reason)
    cursor.refresh_from_db(fields=["requested_at", "enqueued_at", "next_attempt_at", "acquired_at", "expires_at"])
    now = timezone.now()
    when = attempts.words(cursor, states.describe(cursor, now, private=False), look=attempts.look(), now=now)
    return f"{cursor.session.name} is {when}." if when else f"{cursor.session.name} is asked for."


def _clear_backoff(cursor: Cursor, asked: Asked) -> str:
    operations.clear_backoff(cursor_id=cursor.pk, operator=asked.operator, reason=asked.reason)
    return f"{cursor.session.name} no longer waits for its next attempt."


class PlaceForm(AskForm):
    seq = forms.IntegerField(min_value=1, label="Message", help_text="Its number in the session.")


def _distil_again(cursor: Cursor, asked: Asked) -> str:
    seq: int = asked.values["seq"]
    operations.distil_again(cursor_id=cursor.pk, seq=seq, operator=asked.operator, reason=asked.reason)
    return f"{cursor.session.name} is distilled again from message {seq} on."


def _skip(cursor: Cursor, asked: Asked) -> str:
    seq: int = asked.values["seq"]
    operations.skip_to(cursor_id=cursor.pk, seq=seq, operator=asked.operator, reason=asked.reason)
    return f"The next pass over {cursor.session.name} begins with message {seq}."


def _release_lease(cursor: Cursor, asked: Asked) -> str:
    operations.release_lease(cursor_id=cursor.pk, operator=asked.operator, reason=asked.reason)
    return f"The lease of {cursor.session.name} is free."


def _distilled_so_far(request: HttpRequest, rows: Sequence[Cursor]) -> SafeString:
    return goes.with_it("What it can go back over:", {"distilled messages": sum(row.position for row in rows)})


def _waits(request: HttpRequest, rows: Sequence[Cursor]) -> SafeString:
    first, last = rows[0].position + 1, rows[0].watermark
    waiting = f"messages that wait, from {figures.number(first)} to {figures.number(last)}"
    return goes.with_it("What it can leave out:", {waiting: rows[0].lag})


def _held_by(request: HttpRequest, rows: Sequence[Cursor]) -> SafeString:
    return goes.with_it("Whose work goes with it:", {f"pass of {row.holder}": 1 for row in rows})


ACTS = (
    Act(
        name="run-now",
        label="Run now",
        explains="Asks for a pass at once, whatever the cadence says. It calls the model once for each window.",
        run=_run_now,
        final="What is read is paid for, whatever comes of it.",
        bulk=True,
        offered=lambda cursor: cursor.lag > 0 or cursor.retry_seq is not None,
    ),
    Act(
        name="clear-backoff",
        label="Clear backoff",
        explains="Forgets the failures and the wait after them: the next tick tries again.",
        run=_clear_backoff,
        final="The count of failures begins anew: what it was is kept in Activity alone.",
        bulk=True,
        offered=lambda cursor: cursor.failures > 0 or cursor.next_attempt_at is not None,
    ),
    Act(
        name="distil-again",
        label="Distil again",
        explains="Goes back to before a message and distils from it again. Keys are updated, nothing is doubled. A "
        "pass that runs loses its lease.",
        run=_distil_again,
        form=PlaceForm,
        preview=_distilled_so_far,
        final="Every window from there on is paid for again.",
        offered=lambda cursor: cursor.position > 0,
    ),
    Act(
        name="skip",
        label="Skip",
        explains="Leaves out what lies before a message: the next pass begins with it.",
        run=_skip,
        form=PlaceForm,
        preview=_waits,
        final="What is left out is not distilled, unless somebody goes back to it.",
        danger=True,
        offered=lambda cursor: cursor.lag > 0,
    ),
    Act(
        name="release-lease",
        label="Release lease",
        explains="Takes the lease from whoever holds it. Its pass finds the fence raised and writes nothing.",
        run=_release_lease,
        preview=_held_by,
        final="What the pass has done so far is lost, and done again.",
        danger=True,
        offered=lambda cursor: bool(cursor.holder),
    ),
)
