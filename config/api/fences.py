"""What stands between a call and a session that somebody runs."""

from __future__ import annotations

from agentmemory.api.shapes.transcripts import ExecutionIn
from agentmemory.models import Session
from agentmemory.services import transcripts
from sessions_exec.errors import LeaseLost


def guard(execution: ExecutionIn | None) -> transcripts.Guard | None:
    """What checks, within the writing transaction, that a call may write. No execution is granted yet: none holds."""
    return None if execution is None else _lost


def _lost(session: Session) -> None:
    raise LeaseLost("This execution does not hold the session.")
