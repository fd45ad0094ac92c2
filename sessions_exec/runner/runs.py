"""Running a session here: from acquiring it to giving it back, in order whatever happens (S1 to S6)."""

from __future__ import annotations

import logging
import os
import socket
import time
from dataclasses import dataclass

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection, transaction

from agentmemory.models import Session
from agentmemory.services import transcripts
from sessions_exec.errors import LeaseHeld, LeaseLost
from sessions_exec.llm.messages import CallStopped
from sessions_exec.llm.streaming import OnText
from sessions_exec.runner import words
from sessions_exec.runner.holding import Holding, Interrupted
from sessions_exec.runner.model import Model
from sessions_exec.runner.turns import Closed, OutOfTime, Turns
from sessions_exec.services import executions, inbox, own_runs

logger = logging.getLogger(__name__)

IDLE, WAITS, HELD, LOST, INTERRUPTED, OUT_OF_TIME = "idle", "waits", "held", "lost", "interrupted", "out_of_time"


@dataclass(frozen=True, kw_only=True)
class Ran:
    """How a run ended. `idle`: everything that was wanted is done. `waits`: `line` says for what."""

    state: str
    line: str = ""


def _silent(text: str) -> None:
    """Nobody listens."""


def run(*, session: Session, model: Model, on_text: OnText = _silent, deadline: float | None = None) -> Ran:
    """Answer what waits in a session, until nothing does. `deadline` is in seconds of the monotonic clock.

    Asked to stop in the midst (`SystemExit`, `KeyboardInterrupt`), it settles, hands the session over, and goes on to
    stop. Whatever else goes wrong leaves the session to its recovery.
    """
    if line := model.closed():
        own_runs.kept_from(session, line)
        return Ran(state=WAITS, line=line)
    left_open = own_runs.is_left_open(session)
    since = time.monotonic()
    try:
        with transaction.atomic():
            execution = executions.acquire(session=session, holder=holder())
            own_runs.taken(session, epoch=execution.epoch, left_open=left_open)
    except LeaseHeld as error:
        return Ran(state=HELD, line=str(error))
    with Holding(session, execution, since=since) as holding:
        turns = Turns(session=session, model=model, holding=holding, on_text=on_text, deadline=deadline)
        try:
            return _drain(turns, left_open=left_open)
        except CallStopped:
            # It was stopped because the session is held no longer, or will not be in a moment.
            return Ran(state=LOST)
        except LeaseLost as error:
            return Ran(state=LOST, line=str(error))
        except (SystemExit, KeyboardInterrupt):
            _settle(session, holding)
            raise


def holder() -> str:
    """Who runs it, for operators: this worker, or this process."""
    return settings.AGENTMEMORY_WORKER_NAME or f"{socket.gethostname()}:{os.getpid()}"


def _drain(turns: Turns, *, left_open: bool) -> Ran:
    session, holding = turns.session, turns.holding
    try:
        going = turns.promote("step") or left_open or turns.promote("idle")
        while going:
            turns.run()
            going = turns.promote("idle")
    except Interrupted:
        executions.release(session=session, held=holding.held)
        return Ran(state=INTERRUPTED)
    except Closed as closed:
        own_runs.kept_from(session, str(closed))
        hand_over(session, holding)
        return Ran(state=WAITS, line=str(closed))
    except OutOfTime:
        # What is open stays open: the one who comes next goes on with it.
        executions.release(session=session, held=holding.held)
        return Ran(state=OUT_OF_TIME)
    executions.release(session=session, held=holding.held)
    return Ran(state=IDLE)


@transaction.atomic
def hand_over(session: Session, holding: Holding) -> None:
    """Give the session back between two steps, with the wish that whoever comes next goes on. Raises `LeaseLost`.

    Nothing is uncertain, so nothing is left to a recovery, and none is counted (S9).
    """
    session = transcripts.lock(session.pk)
    holding.held(session)
    if session.terminal_seq < session.last_seq:
        uid = f"handed-over-{holding.epoch}"
        inbox.admit_continuation(session=session, uid=uid, prompt=words.HANDED_OVER, resume=True)
    executions.release(session=session, held=holding.held)


def _settle(session: Session, holding: Holding) -> None:
    """Hand over at a stop in the midst: a call of the model was broken off without effect, a tool's was undone.

    Where that cannot be done the execution's time runs out, and it is recovered.
    """
    # It may have been broken off in the midst of a statement.
    if not connection.in_atomic_block:
        connection.close()
    try:
        hand_over(session, holding)
    except (LeaseLost, DatabaseError, InterfaceError) as error:
        kind = type(error).__name__
        logger.warning("a run was not handed over", extra={"action": "run.not_handed_over", "kind": kind})
