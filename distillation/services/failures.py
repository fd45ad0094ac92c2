"""How a pass fails, and what follows: backoff, a provider's pause, a halved window, quarantine (D7, D19, D20)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db.models import F
from django.utils import timezone

from agentmemory.errors import AgentMemoryError
from agentmemory.models import Provider
from agentmemory.services import redaction
from distillation import answers
from distillation.errors import NothingWritten
from distillation.models import Cursor, DistillationPass
from distillation.services import backoff, gates, quarantining, reading, telling
from sessions_exec.llm.messages import FailureKind, ModelCallFailed

KILLED = "killed"
MOVED = "the cursor was moved while it ran"
ERROR_CHARS = 4_000


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One failed pass: its kind, its real text, and whether the window itself may be the cause (D20)."""

    kind: str
    message: str
    window_at_fault: bool
    retry_after: float | None = None

    @property
    def cut(self) -> bool:
        return self.kind == FailureKind.CUT


def of(error: Exception) -> Failure:
    """What kind of failure an error of extracting or of applying is."""
    if isinstance(error, ModelCallFailed):
        return Failure(
            kind=error.kind.value,
            message=error.message,
            window_at_fault=error.window_at_fault,
            retry_after=error.retry_after,
        )
    if isinstance(error, answers.AnswerMalformed):
        return Failure(kind="malformed", message=str(error), window_at_fault=True)
    if isinstance(error, answers.AnswerWrongShape):
        return Failure(kind="wrong_shape", message=str(error), window_at_fault=True)
    if isinstance(error, NothingWritten):
        return Failure(kind="all_refused", message=str(error), window_at_fault=True)
    words = f"{type(error).__name__}: {error}"
    if isinstance(error, AgentMemoryError):
        # Something is set up wrongly, such as an address that is not allowed: no window is the cause of that.
        return Failure(kind="configuration", message=words, window_at_fault=False)
    return Failure(kind="fault", message=words, window_at_fault=True)


def unexpected(error: Exception) -> bool:
    """Whether it is none of the failures that passes are known to end in."""
    return not isinstance(error, ModelCallFailed | answers.AnswerUnusable | NothingWritten | AgentMemoryError)


def record(*, cursor: Cursor, row: DistillationPass, error: Exception) -> None:
    """End a pass as failed, within the caller's fenced transaction. The position stands (D7)."""
    failure = of(error)
    now = timezone.now()
    _end_row(row, failure, now)
    telling.ended(row)
    if isinstance(error, ModelCallFailed) and row.provider is not None:
        if error.provider_wide:
            gates.pause(row.provider, error, now=now)
            _give_back(cursor, waits_for=f"{gates.BLOCKED}: provider {row.provider} paused: {failure.message}")
            return
        gates.still_paused(row.provider, now=now)
    _count(cursor, row, failure, now)


def settle_abandoned(cursor: Cursor) -> DistillationPass | None:
    """Deal with what an earlier holder of a just acquired lease left behind.

    Returns its pass where the answer was stored: that one is applied, not paid for again (D15). Else the attempt
    counts as one that the window may be the cause of (D20), without a wait: the lease has waited long enough.
    """
    left = DistillationPass.objects.filter(cursor=cursor, outcome=DistillationPass.Outcome.RUNNING)
    row = left.select_related("provider", "agent", "agent__space").order_by("-pk").first()
    # An answer whose writing kills its worker must come to an end as well.
    if row is not None and row.answered_at and _still_ahead(cursor, row) and cursor.attempts <= _tolerance():
        return row
    if cursor.attempts <= 1:
        # An operator has moved the cursor since, and set its count back: what ran then counts for nothing.
        if row is not None:
            _end_row(row, Failure(kind="lease_lost", message=MOVED, window_at_fault=False), timezone.now())
        return None
    failure = Failure(kind=KILLED, message="its worker died in this pass", window_at_fault=True)
    if row is not None:
        _end_row(row, failure, timezone.now())
        telling.ended(row)
    _count(cursor, row, failure, timezone.now(), keep_lease=True)
    cursor.refresh_from_db()
    return None


def cost(provider: Provider | None, input_tokens: int, output_tokens: int) -> Decimal | None:
    """US dollars for a call; unknown where the provider has no prices. Without a model there is nothing to pay."""
    if provider is not None and provider.kind == Provider.Kind.OFFLINE:
        return Decimal(0)
    if provider is None or provider.price_in is None or provider.price_out is None:
        return None
    return (provider.price_in * input_tokens + provider.price_out * output_tokens) / Decimal(1_000_000)


def _end_row(row: DistillationPass, failure: Failure, now: datetime) -> None:
    row.outcome = DistillationPass.Outcome.FAILED
    row.failure, row.error, row.finished_at = failure.kind, _words(failure), now
    row.save(update_fields=["outcome", "failure", "error", "finished_at", "refused"])


def _count(
    cursor: Cursor, row: DistillationPass | None, failure: Failure, now: datetime, *, keep_lease: bool = False
) -> None:
    if row is not None and row.end <= cursor.position and failure.window_at_fault:
        quarantining.hold_again(cursor, row.end, error=_words(failure))
        _give_back(cursor, waits_for="", keep_lease=keep_lease)
        return
    shown = len(row.shown) if row is not None else reading.budget(cursor).messages
    changes: dict[str, Any] = {"attempts": 0, "last_error": _words(failure), "waits_for": ""}
    if failure.cut and shown > 1:
        # Never sent again as it was: half of it is due at once, and nothing is counted (D7).
        changes |= {"window_limit": shown // 2, "next_attempt_at": None}
    else:
        changes |= _counted(cursor, shown, failure, now)
    if failure.kind == KILLED:
        changes["next_attempt_at"] = None
    if keep_lease:
        changes["attempts"] = 1
    else:
        # A request is not served by a failure: it stays, and is taken up when the backoff is over (D22).
        changes |= {"holder": "", "expires_at": None}
    Cursor.objects.filter(pk=cursor.pk, epoch=cursor.epoch).update(**changes)
    if failure.window_at_fault and shown == 1 and changes.get("single_failures", 0) >= _tolerance():
        window = reading.next_window(cursor) if row is None else reading.window_of(row)
        quarantining.hold(cursor, window, error=_words(failure))


def _counted(cursor: Cursor, shown: int, failure: Failure, now: datetime) -> dict[str, Any]:
    failures = cursor.failures + 1
    changes: dict[str, Any] = {"failures": failures}
    if not failure.window_at_fault:
        return changes | {"next_attempt_at": now + backoff.wait(failures, retry_after=failure.retry_after)}
    window_failures = cursor.window_failures + 1
    changes["window_failures"] = window_failures
    steps = failures
    if shown == 1:
        steps = changes["single_failures"] = cursor.single_failures + 1
    elif window_failures >= _tolerance():
        # While it shrinks, the wait stays at the base.
        steps, changes["window_limit"] = 1, max(1, shown // 2)
    return changes | {"next_attempt_at": now + backoff.wait(steps, retry_after=failure.retry_after)}


def give_back(*, cursor: Cursor, row: DistillationPass, reason: str) -> None:
    """End a pass that was stopped from outside: its attempt counts for nothing (D20). A stored answer stays (D15)."""
    if row.answered_at is None:
        _end_row(row, Failure(kind="stopped", message=reason, window_at_fault=False), timezone.now())
    mine = Cursor.objects.filter(pk=cursor.pk, epoch=cursor.epoch, attempts__gt=0)
    mine.update(attempts=F("attempts") - 1, holder="", expires_at=None)


def _give_back(cursor: Cursor, *, waits_for: str, keep_lease: bool = False) -> None:
    lease: dict[str, Any] = {"attempts": 1} if keep_lease else {"attempts": 0, "holder": "", "expires_at": None}
    Cursor.objects.filter(pk=cursor.pk, epoch=cursor.epoch).update(
        waits_for=waits_for[:500], requested_at=None, **lease
    )


def _still_ahead(cursor: Cursor, row: DistillationPass) -> bool:
    """Whether a pass begins where the cursor stands, or is of the message that is tried again."""
    return row.start == cursor.position or (row.end <= cursor.position and row.end == cursor.retry_seq)


def _words(failure: Failure) -> str:
    return redaction.clean_text(failure.message)[:ERROR_CHARS]


def _tolerance() -> int:
    return int(settings.AGENTMEMORY_QUARANTINE_AFTER)
