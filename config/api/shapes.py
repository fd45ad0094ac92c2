"""What spans the apps: a session with its execution and its cursor, and the cursors themselves."""

from __future__ import annotations

from typing import Any, Literal, cast

from pydantic import Field

from agentmemory.api.fields import Timestamp
from agentmemory.api.shapes import Out
from agentmemory.models import Session
from distillation.models import Cursor
from distillation.services import states
from sessions_exec.models import Execution


class ExecutionOut(Out):
    """The right to run a session now."""

    holder: str
    epoch: int
    phase: Literal["ready", "safe", "unknown"]
    expires_at: Timestamp


class SessionOut(Out):
    """A session, how far it was distilled, and who runs it."""

    id: str
    agent: str
    title: str
    metadata: dict[str, Any]
    status: Literal["active", "complete"]
    last_seq: int
    terminal_seq: int
    distilled_seq: int
    execution: ExecutionOut | None


class CursorOut(Out):
    """How far a session has been distilled, and why not further."""

    session: str
    agent: str
    position: int = Field(description="The last message that was looked at; 0: none.")
    watermark: int = Field(description="The last message that may be read now.")
    lag: int
    failures: int
    next_attempt_at: Timestamp | None
    last_error: str
    state: Literal["idle", "due", "running", "backing_off", "blocked", "skipped"]
    reason: str
    quarantined: list[int] = Field(description="The numbers of messages that are left out: they failed alone.")


def session_out(session: Session, *, distilled_seq: int, execution: Execution | None) -> SessionOut:
    """A session as its clients see it."""
    return SessionOut(
        id=session.name,
        agent=session.agent.handle,
        title=session.title,
        metadata=session.metadata,
        status="complete" if session.completed_at is not None else "active",
        last_seq=session.last_seq,
        terminal_seq=session.terminal_seq,
        distilled_seq=distilled_seq,
        execution=None if execution is None else _execution_out(execution),
    )


def _execution_out(row: Execution) -> ExecutionOut:
    values: dict[str, Any] = {name: getattr(row, name) for name in ("holder", "epoch", "phase", "expires_at")}
    return ExecutionOut(**values)


def cursor_out(cursor: Cursor, state: states.State) -> CursorOut:
    """A cursor of `standings.listing`, with how it stands."""
    return CursorOut(
        session=cursor.session.name,
        agent=cursor.agent.handle,
        position=cursor.position,
        watermark=cursor.watermark,
        lag=cursor.lag,
        failures=cursor.failures,
        next_attempt_at=cursor.next_attempt_at,
        last_error=cursor.last_error,
        state=cast(Any, state.name),
        reason=state.line,
        quarantined=cast(Any, cursor).quarantined_seqs,
    )
