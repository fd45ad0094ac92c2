"""Passes one after another, over one session or over all that are due (D21)."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.utils import timezone

from agentmemory.models import Agent, Session, Space
from agentmemory.services import providers
from distillation.extractors.anthropic import AnthropicExtractor
from distillation.extractors.base import Extraction, ExtractionTask, Extractor
from distillation.extractors.offline import OfflineExtractor
from distillation.models import Cursor, DistillationPass
from distillation.querysets import CursorQuerySet
from distillation.services import failures, holders, passes, reading, resolution, seats
from sessions_exec import faults
from sessions_exec.errors import LeaseHeld, LeaseLost

logger = logging.getLogger(__name__)

EXTRACTORS: dict[str, Extractor] = {"anthropic": AnthropicExtractor(), "offline": OfflineExtractor()}
OUTPUT_TOKENS = 8_192
# A pass needs a little more than its call: reading, storing, writing.
MARGIN = 5.0
OUT_OF_TIME = "out_of_time"
STOPPED = "stopped"

# The passes of this process that wait for their call, so that a stop can give their attempts back.
_under_way: dict[int, passes.Begun] = {}

OnPass = Callable[["Result"], None]


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one attempt at one session came to. `again`: the next one need not wait for a tick."""

    cursor_id: int
    state: str
    line: str = ""
    again: bool = False
    row: DistillationPass | None = None


@dataclass(kw_only=True)
class Summary:
    """What a run did, by how its passes ended, and the sessions that wait with the reason."""

    passes: dict[str, int] = field(default_factory=dict)
    written: int = 0
    waiting: dict[int, Result] = field(default_factory=dict)

    def add(self, result: Result) -> None:
        if result.row is None:
            self.waiting[result.cursor_id] = result
            return
        self.passes[result.state] = self.passes.get(result.state, 0) + 1
        self.written += len(result.row.written)


def run_pass(*, cursor_id: int, worker: str = "", force: bool = False, stop: threading.Event | None = None) -> Result:
    """One attempt at one session, from the lease to the end. Every outcome is a result, but for what is a fault.

    When the database fails, nothing can be put on record: that error is raised, and the lease runs out.
    """
    with seats.taken():
        if stop is not None and stop.is_set():
            return Result(cursor_id=cursor_id, state=STOPPED)
        try:
            begun = passes.begin(cursor_id=cursor_id, worker=worker or holders.own(), force=force)
        except (LeaseHeld, LeaseLost):
            return Result(cursor_id=cursor_id, state="running", line="another pass reads it now")
        if isinstance(begun, passes.Waiting):
            return Result(cursor_id=cursor_id, state=begun.state, line=begun.line)
        if isinstance(begun, passes.Passed):
            return Result(cursor_id=cursor_id, state="passed", again=_still_due(cursor_id))
        with _in_hand(begun):
            try:
                # Noted first: whoever has set it since finds this pass among those under way.
                if stop is not None and stop.is_set():
                    _give_back(begun)
                    return Result(cursor_id=cursor_id, state=STOPPED)
                return _carry_out(begun)
            except LeaseLost as error:
                passes.lose(begun)
                return Result(cursor_id=cursor_id, state="lost", line=str(error))


def run_cursor(
    *,
    cursor_id: int,
    worker: str = "",
    force: bool = False,
    deadline: float | None = None,
    on_pass: OnPass | None = None,
    stop: threading.Event | None = None,
) -> Result:
    """Passes over one session while its windows are full, within the run's limit (D21). The last one's result.

    `deadline` is in seconds of the monotonic clock: no pass is begun that could not end before it (A3), nor one after
    `stop` is set.
    """
    result = Result(cursor_id=cursor_id, state=passes.IDLE)
    for _ in range(settings.AGENTMEMORY_PASSES_PER_RUN):
        if not time_is_left(deadline):
            return Result(cursor_id=cursor_id, state=OUT_OF_TIME)
        result = run_pass(cursor_id=cursor_id, worker=worker, force=force, stop=stop)
        if on_pass is not None:
            on_pass(result)
        if not result.again:
            return result
    limit = f"{settings.AGENTMEMORY_PASSES_PER_RUN} passes were made in one run; the rest goes on at the next tick"
    # What was asked for before is served as far as one run goes, or there would be no end to it (D21).
    Cursor.objects.filter(pk=cursor_id).update(waits_for=f"due: {limit}", requested_at=passes.asked_meanwhile())
    return result


def run_due(
    *,
    space: Space | None = None,
    agent: Agent | None = None,
    session: Session | None = None,
    on_pass: OnPass | None = None,
    force: bool = False,
) -> Summary:
    """Everything that is due, now, until nothing is (`distill`). What waits for a reason is left with it."""
    summary = Summary()

    def note(result: Result) -> None:
        summary.add(result)
        if on_pass is not None:
            on_pass(result)

    tried: set[int] = set()
    while True:
        due = within(Cursor.objects.due(timezone.now()), space=space, agent=agent, session=session)
        ids = [pk for pk in due.order_by("due_since", "pk").values_list("pk", flat=True) if pk not in tried]
        if not ids:
            return summary
        for cursor_id in ids:
            if not run_cursor(cursor_id=cursor_id, on_pass=note, force=force).again:
                tried.add(cursor_id)


def give_back_all() -> None:
    """Give back the attempts of all passes of this process, which is asked to stop (D20)."""
    for begun in list(_under_way.values()):
        _give_back(begun)


def time_is_left(deadline: float | None) -> bool:
    """Whether a pass that begins now ends before `deadline`, in seconds of the monotonic clock."""
    return deadline is None or time.monotonic() + settings.AGENTMEMORY_CALL_TIMEOUT + MARGIN <= deadline


def within(
    cursors: CursorQuerySet, *, space: Space | None, agent: Agent | None, session: Session | None
) -> CursorQuerySet:
    """Those of a space, an agent, a session, where one is named."""
    if space is not None:
        cursors = cursors.filter(space=space)
    if agent is not None:
        cursors = cursors.filter(agent=agent)
    return cursors if session is None else cursors.filter(session=session)


def _carry_out(begun: passes.Begun) -> Result:
    try:
        if not begun.answered:
            passes.store_answer(begun, _extract(begun))
        row = passes.apply(begun)
    except (LeaseLost, OperationalError, InterfaceError):
        raise
    except Exception as error:  # a fault in one session, on record with it, stops no other
        if failures.unexpected(error):
            logger.exception("a pass failed", extra={"action": "pass.fault", "pass_id": begun.row.pk})
        passes.fail(begun, error)
        row = begun.row
        return _ended(row, line=row.error, again=_still_due(begun.cursor.pk))
    return _ended(row, again=row.full and _still_due(begun.cursor.pk))


def _ended(row: DistillationPass, *, again: bool, line: str = "") -> Result:
    return Result(cursor_id=row.cursor_id or 0, state=row.outcome, line=line, again=again, row=row)


def _extract(begun: passes.Begun) -> Extraction:
    """The paid call. No transaction is open, and no connection is held, while the network is waited for (A2)."""
    task = ExtractionTask(
        prompt=reading.prompt(begun.cursor.agent, begun.window, begun.known, fence=begun.row.fence),
        window=begun.window,
        known=begun.known,
        model=begun.resolved.model,
        endpoint=resolution.endpoint(begun.resolved.provider),
        structured=providers.takes_structured_outputs(begun.resolved.provider),
        max_output_tokens=OUTPUT_TOKENS,
    )
    extractor = EXTRACTORS[begun.resolved.provider.kind]
    faults.reach("call.before")
    with seats.given_up():
        extraction = extractor.extract(task)
    faults.reach("call.after")
    return extraction


@contextlib.contextmanager
def _in_hand(begun: passes.Begun) -> Iterator[None]:
    """Note a pass while it is under way. Stopped from outside, it gives its attempt back (D20)."""
    _under_way[begun.row.pk] = begun
    try:
        yield
    except (SystemExit, KeyboardInterrupt):
        give_back_all()
        raise
    finally:
        _under_way.pop(begun.row.pk, None)


def _give_back(begun: passes.Begun) -> None:
    with contextlib.suppress(LeaseLost):
        passes.give_back(begun, reason="its worker was asked to stop")


def _still_due(cursor_id: int) -> bool:
    return Cursor.objects.due(timezone.now()).filter(pk=cursor_id).exists()
