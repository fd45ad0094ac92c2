"""One pass, from its begin to its end: short transactions around a call that none of them spans (D1, A2).

*lease, window, commit* · the call · *fence, answer, commit* · *fence, memories, position, commit*.
Whatever dies in between, the position stands where it was, and an answer that was stored is not paid for again (D15).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.conf import settings
from django.db import transaction
from django.db.models import Case, F, Value, When
from django.utils import timezone

from agentmemory.models import Session
from agentmemory.services import redaction
from distillation import prompts, windows
from distillation.extractors.base import Extraction
from distillation.models import Cursor, DistillationPass
from distillation.services import failures, gates, quarantining, reading, resolution, telling, writing
from sessions_exec import faults
from sessions_exec.errors import LeaseLost
from sessions_exec.llm.messages import ModelCallFailed

IDLE = "idle"
BACKING_OFF = "backing_off"
ERASED = "erased"
"""The failure of a pass whose messages were erased for good while it ran."""


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """No pass was begun, and why. The lease is free again."""

    state: str
    line: str = ""


@dataclass(frozen=True, kw_only=True)
class Passed:
    """The stretch held no speech, and was passed over without a call (D5)."""

    end: int


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A pass that holds its lease and waits for an answer, or has one that was stored before a crash (D15)."""

    cursor: Cursor
    row: DistillationPass
    window: windows.Window
    known: list[prompts.Known]
    resolved: resolution.Resolution

    @property
    def answered(self) -> bool:
        return self.row.answered_at is not None


def begin(*, cursor_id: int, worker: str, force: bool = False) -> Waiting | Passed | Begun:
    """Take the lease and decide what this pass reads. `force` does not wait for a backoff to end.

    Raises `LeaseHeld`, and `LeaseLost` where it was taken away at once. An attempt is counted, and committed, before
    anything else is done (D22); stopped from outside before there is a pass, it is given back (D20).
    """
    faults.reach("lease.before")
    with transaction.atomic():
        epoch = Cursor.objects.acquire(cursor_id, holder=worker, seconds=settings.AGENTMEMORY_CURSOR_LEASE)
        Cursor.objects.filter(pk=cursor_id).update(attempts=F("attempts") + 1, enqueued_at=None)
    try:
        faults.reach("lease.after")
        begun = _take_up(cursor_id, epoch, worker, force=force)
        faults.reach("window.after")
    except (SystemExit, KeyboardInterrupt):
        _take_back(cursor_id, epoch)
        raise
    return begun


def store_answer(begun: Begun, extraction: Extraction) -> None:
    """Keep the answer and what it cost, before anything is made of it (D15). Raises `LeaseLost`.

    What was paid is put on record also when the lease is gone by now.
    """
    faults.reach("answer.before")
    begun.row.answer, begun.row.answered_at = redaction.clean_text(extraction.text), timezone.now()
    _record_usage(begun.row, extraction.input_tokens, extraction.output_tokens)
    faults.reach("answer.after")
    Cursor.objects.fence_now(begun.cursor.pk, epoch=begun.cursor.epoch)


def fail(begun: Begun, error: Exception) -> None:
    """End the pass as failed; the position stands (D7). Raises `LeaseLost`, and `error` if it is none of a pass's."""
    if isinstance(error, ModelCallFailed):
        begun.row.answer = redaction.clean_text(error.text)
        _record_usage(begun.row, error.input_tokens, error.output_tokens)
    with fenced(begun) as cursor:
        failures.record(cursor=cursor, row=begun.row, error=error)


def lose(begun: Begun) -> None:
    """Close a pass whose lease was taken over, or whose session is gone. It has written nothing.

    Where its answer is stored, the next holder of the lease makes the memories of it (D15), or closes it.
    """
    mine = DistillationPass.objects.filter(pk=begun.row.pk, epoch=begun.cursor.epoch)
    if Cursor.objects.filter(pk=begun.cursor.pk).exists():
        mine = mine.filter(answered_at__isnull=True)
    mine.filter(outcome=DistillationPass.Outcome.RUNNING).update(
        outcome=DistillationPass.Outcome.FAILED,
        failure="lease_lost",
        error="its lease was taken over, or its session was deleted",
        finished_at=timezone.now(),
    )


def give_back(begun: Begun, *, reason: str) -> None:
    """End a pass that is stopped from outside; its attempt counts for nothing (D20). Raises `LeaseLost`.

    An answer that is stored by now stays, for the next pass to make memories of (D15).
    """
    with fenced(begun) as cursor:
        # The thread that works on it may just have stored an answer.
        begun.row.refresh_from_db(fields=["answered_at", "outcome"])
        failures.give_back(cursor=cursor, row=begun.row, reason=reason)


def apply(begun: Begun) -> DistillationPass:
    """Write what the stored answer holds, and move the position, in one fenced transaction (D1).

    Raises `LeaseLost`, `AnswerUnusable` and `NothingWritten`; then nothing of it is written.
    """
    faults.reach("write.before")
    with fenced(begun) as cursor:
        outcome = writing.write(cursor=cursor, row=begun.row, window=begun.window)
        faults.reach("write.after")
        _finish(begun.row, outcome)
        advance(cursor, begun.row.end, more=begun.row.full)
        telling.ended(begun.row)
        if begun.row.provider is not None:
            gates.resume(begun.row.provider)
        faults.reach("commit.before")
    faults.reach("commit.after")
    return begun.row


def advance(cursor: Cursor, end: int, *, more: bool) -> None:
    """Move the position of a fenced cursor to `end` and give the lease back. A success resets everything (D7).

    A message that was tried again lies behind the position, which then stands. With `more` behind the window a request
    is not served yet, and stays: whoever dies in between, the rest is not left until the next tick (D22).
    """
    position = max(cursor.position, end)
    watermark = max(cursor.watermark, position)
    moved = Cursor.objects.filter(pk=cursor.pk, epoch=cursor.epoch, position=cursor.position).update(
        position=position,
        watermark=watermark,
        retry_seq=quarantining.settle(cursor, end) if end <= cursor.position else cursor.retry_seq,
        failures=0,
        window_failures=0,
        single_failures=0,
        attempts=0,
        window_limit=None,
        next_attempt_at=None,
        last_error="",
        waits_for="",
        last_success_at=timezone.now(),
        requested_at=_unserved(position, more=more),
        due_since=reading.oldest_turn(cursor.session_id, after=position, upto=watermark),
        holder="",
        expires_at=None,
    )
    if moved != 1:
        raise LeaseLost(f"Cursor {cursor.pk} has moved on.")


@contextmanager
def fenced(begun: Begun) -> Iterator[Cursor]:
    """A transaction that holds the session still, then the lease. Raises `LeaseLost`.

    The session comes first, as everywhere: who takes messages back waits for us, or we see what they did.
    """
    with transaction.atomic():
        yield _locked(begun.cursor.pk, begun.cursor.epoch)


def _finish(row: DistillationPass, outcome: writing.Written) -> None:
    row.written, row.refused = outcome.written, outcome.refused
    row.outcome = DistillationPass.Outcome.APPLIED if outcome.written else DistillationPass.Outcome.EMPTY
    row.finished_at = timezone.now()
    row.save(update_fields=["written", "refused", "outcome", "finished_at"])


def _record_usage(row: DistillationPass, input_tokens: int, output_tokens: int) -> None:
    """Put what a call cost on its pass, whatever came of it (D25)."""
    row.input_tokens, row.output_tokens = input_tokens, output_tokens
    row.cost = failures.cost(row.provider, input_tokens, output_tokens)
    ours = DistillationPass.objects.filter(pk=row.pk)
    with transaction.atomic():
        ours.update(input_tokens=row.input_tokens, output_tokens=row.output_tokens, cost=row.cost)
        # Not over a purge that ended the pass meanwhile: what it read is gone for good, and so is what was said of it.
        ours.exclude(failure=ERASED).update(answer=row.answer, answered_at=row.answered_at)
        telling.spent(row)


def _locked(cursor_id: int, epoch: int) -> Cursor:
    # Of the session alone: the cursor, through which it is found, is held by the fence, which lets renewals pass.
    Session.objects.select_for_update(of=("self",), no_key=True).filter(cursor=cursor_id).first()
    Cursor.objects.fence(cursor_id, epoch=epoch)
    related = ("session", "space", "agent", "agent__space", "agent__provider")
    cursor = Cursor.objects.select_related(*related).filter(pk=cursor_id).first()
    if cursor is None:
        raise LeaseLost(f"Cursor {cursor_id} is gone with its session.")
    cursor.session.agent = cursor.agent
    return cursor


def _take_up(cursor_id: int, epoch: int, worker: str, *, force: bool) -> Waiting | Passed | Begun:
    """Settle what an earlier holder left, then choose the window, in one fenced transaction."""
    faults.reach("window.before")
    with transaction.atomic():
        cursor = _locked(cursor_id, epoch)
        resumed = failures.settle_abandoned(cursor)
        if resumed is not None:
            return _resume(cursor, resumed)
        begun: Waiting | Passed | Begun = _decide(cursor, worker, force=force)
        if not isinstance(begun, Begun):
            _let_go(cursor, begun)
        return begun


def _take_back(cursor_id: int, epoch: int) -> None:
    """Undo the count of an attempt that came to nothing, and give its lease back with it."""
    with transaction.atomic():
        mine = Cursor.objects.filter(pk=cursor_id, epoch=epoch, attempts__gt=0)
        mine.update(attempts=F("attempts") - 1, holder="", expires_at=None)
        left = DistillationPass.objects.filter(cursor=cursor_id, epoch=epoch, answered_at__isnull=True)
        left.filter(outcome=DistillationPass.Outcome.RUNNING).update(
            outcome=DistillationPass.Outcome.FAILED,
            failure="stopped",
            error="its worker was asked to stop",
            finished_at=timezone.now(),
        )


def asked_meanwhile() -> Case:
    """A request that came since the lease was last taken; any other is done with."""
    return Case(When(requested_at__gt=F("acquired_at"), then=F("requested_at")), default=None)


def _unserved(position: int, *, more: bool) -> Case:
    """A request that the pass has not served stays, while something waits; any other is done with."""
    kept = F("requested_at") if more else asked_meanwhile()
    return Case(When(watermark__gt=Value(position), then=kept), default=None)


def _decide(cursor: Cursor, worker: str, *, force: bool) -> Waiting | Passed | Begun:
    now = timezone.now()
    if cursor.lag == 0 and cursor.retry_seq is None:
        return Waiting(state=IDLE)
    if cursor.next_attempt_at is not None and cursor.next_attempt_at > now and not force:
        return Waiting(state=BACKING_OFF, line=cursor.last_error)
    if closed := gates.agent_gate(cursor):
        return Waiting(state=closed.state, line=closed.line)
    retry = cursor.retry_seq
    window = reading.next_window(cursor) if retry is None else reading.retried_window(cursor, retry)
    if not window.shown:
        return Passed(end=window.end)
    resolved = resolution.resolve(cursor.agent)
    if closed := gates.check(cursor, resolved, now=now):
        return Waiting(state=closed.state, line=closed.line)
    if not gates.probe(resolved.provider, now=now):
        # Its pause has just ended, and another call finds out what it says now.
        return Waiting(state=gates.BLOCKED, line=f"provider {resolved.provider} is being tried by another pass")
    return _open(cursor, worker, window, resolved)


def _open(cursor: Cursor, worker: str, window: windows.Window, resolved: resolution.Resolution) -> Begun:
    known = reading.known_for(cursor.agent, window)
    row = DistillationPass.objects.create(
        space=cursor.space,
        agent=cursor.agent,
        cursor=cursor,
        session=cursor.session,
        session_name=cursor.session.name,
        epoch=cursor.epoch,
        worker=worker,
        start=window.start,
        end=window.end,
        shown=[shown.seq for shown in window.shown],
        full=window.full,
        fence=prompts.new_fence(),
        known=[[each.memory_id, each.version] for each in known],
        provider=resolved.provider,
        provider_name=resolved.provider.name,
        model=resolved.model,
        extractor=resolved.provider.kind,
        prompt_version=prompts.VERSION,
    )
    return Begun(cursor=cursor, row=row, window=window, known=[each.known for each in known], resolved=resolved)


def _resume(cursor: Cursor, row: DistillationPass) -> Waiting | Begun:
    """Go on with a pass whose answer was stored before its worker died, unless its agent may not work now (D16)."""
    if closed := gates.agent_gate(cursor):
        waiting = Waiting(state=closed.state, line=closed.line)
        _let_go(cursor, waiting)
        return waiting
    row.epoch = cursor.epoch
    row.save(update_fields=["epoch"])
    return Begun(
        cursor=cursor,
        row=row,
        window=reading.window_of(row),
        known=reading.known_of(row),
        resolved=resolution.resolve(cursor.agent),
    )


def _let_go(cursor: Cursor, ended: Waiting | Passed) -> None:
    """End what became no call: pass over a textless stretch, or give the lease back with the reason."""
    if isinstance(ended, Passed):
        advance(cursor, ended.end, more=True)
        return
    shows = ended.state in {gates.BLOCKED, gates.SKIPPED}
    Cursor.objects.filter(pk=cursor.pk, epoch=cursor.epoch).update(
        waits_for=f"{ended.state}: {ended.line}"[:500] if shows else "",
        attempts=0,
        requested_at=None,
        holder="",
        expires_at=None,
    )
