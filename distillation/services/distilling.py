"""Passes one after another, over one session or over all that are due (D21)."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from django.conf import settings
from django.db import connection
from django.utils import timezone

from agentmemory.models import Agent, Session, Space
from agentmemory.services import providers
from distillation import answers
from distillation.errors import NothingWritten
from distillation.extractors.anthropic import AnthropicExtractor
from distillation.extractors.base import Extraction, ExtractionTask, Extractor
from distillation.extractors.offline import OfflineExtractor
from distillation.models import Cursor, DistillationPass
from distillation.querysets import CursorQuerySet
from distillation.services import passes, reading, resolution
from sessions_exec import faults
from sessions_exec.errors import LeaseHeld, LeaseLost, TaskStopped
from sessions_exec.llm.messages import ModelCallFailed

EXTRACTORS: dict[str, Extractor] = {"anthropic": AnthropicExtractor(), "offline": OfflineExtractor()}
OUTPUT_TOKENS = 8_192
# A pass needs a little more than its call: reading, storing, writing.
MARGIN = 5.0
OUT_OF_TIME = "out_of_time"

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


def run_pass(*, cursor_id: int, worker: str = "", force: bool = False) -> Result:
    """One attempt at one session, from the lease to the end. Every outcome is a result, but for what is a fault."""
    try:
        begun = passes.begin(cursor_id=cursor_id, worker=worker or _worker(), force=force)
    except (LeaseHeld, LeaseLost) as error:
        return Result(cursor_id=cursor_id, state="running", line=str(error))
    if isinstance(begun, passes.Waiting):
        return Result(cursor_id=cursor_id, state=begun.state, line=begun.line)
    if isinstance(begun, passes.Passed):
        return Result(cursor_id=cursor_id, state="passed", again=_still_due(cursor_id))
    with _in_hand(begun):
        try:
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
) -> Result:
    """Passes over one session while its windows are full, within the run's limit (D21). The last one's result.

    `deadline` is in seconds of the monotonic clock: no pass is begun that could not end before it (A3).
    """
    result = Result(cursor_id=cursor_id, state=passes.IDLE)
    for _ in range(settings.AGENTMEMORY_PASSES_PER_RUN):
        if deadline is not None and time.monotonic() + settings.AGENTMEMORY_CALL_TIMEOUT + MARGIN > deadline:
            return Result(cursor_id=cursor_id, state=OUT_OF_TIME)
        result = run_pass(cursor_id=cursor_id, worker=worker, force=force)
        if on_pass is not None:
            on_pass(result)
        if not result.again:
            return result
    limit = f"{settings.AGENTMEMORY_PASSES_PER_RUN} passes were made in one run; the rest goes on at the next tick"
    Cursor.objects.filter(pk=cursor_id).update(waits_for=f"due: {limit}")
    return result


def run_many(
    *, cursor_ids: Sequence[int], deadline: float | None = None, on_pass: OnPass | None = None
) -> list[Result]:
    """Several sessions side by side, each in a thread that holds no connection during its call (A3)."""
    if len(cursor_ids) == 1:
        return [run_cursor(cursor_id=cursor_ids[0], deadline=deadline, on_pass=on_pass)]
    at_once = min(len(cursor_ids), settings.AGENTMEMORY_CALLS_AT_ONCE) or 1
    lock = threading.Lock()

    def one(cursor_id: int) -> Result:
        try:
            return run_cursor(cursor_id=cursor_id, deadline=deadline, on_pass=told)
        finally:
            connection.close()

    def told(result: Result) -> None:
        if on_pass is not None:
            with lock:
                on_pass(result)

    pool = ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="pass")
    try:
        return list(pool.map(one, cursor_ids))
    except TaskStopped:
        # Threads cannot be stopped in their calls; what they bring back finds the lease given away.
        _give_back_all()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


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
    except (ModelCallFailed, answers.AnswerUnusable, NothingWritten) as error:
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
    with _without_connection():
        extraction = extractor.extract(task)
    faults.reach("call.after")
    return extraction


@contextlib.contextmanager
def _in_hand(begun: passes.Begun) -> Iterator[None]:
    """Note a pass while it is under way. Stopped from outside, it gives its attempt back (D20)."""
    _under_way[begun.row.pk] = begun
    try:
        yield
    except TaskStopped:
        _give_back_all()
        raise
    finally:
        _under_way.pop(begun.row.pk, None)


def _give_back_all() -> None:
    for begun in list(_under_way.values()):
        with contextlib.suppress(LeaseLost):
            passes.give_back(begun, reason="its worker was asked to stop")


@contextlib.contextmanager
def _without_connection() -> Iterator[None]:
    if not connection.in_atomic_block:
        connection.close()
    yield


def _still_due(cursor_id: int) -> bool:
    return Cursor.objects.due(timezone.now()).filter(pk=cursor_id).exists()


def _worker() -> str:
    return settings.AGENTMEMORY_WORKER_NAME or f"{socket.gethostname()}:{os.getpid()}"
