"""What stands between a call and a session that somebody runs."""

from __future__ import annotations

from agentmemory.api.shapes.transcripts import ExecutionIn
from agentmemory.services import transcripts
from sessions_exec.services import executions


def guard(execution: ExecutionIn | None) -> transcripts.Guard | None:
    """What checks, within the writing transaction, that a call writes as the execution that it names.

    Without one it may write as long as nobody runs the session. Raises `LeaseLost` for a name that none has.
    """
    return None if execution is None else executions.guard(execution_id=execution.id, epoch=execution.epoch)
