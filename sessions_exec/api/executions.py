"""Running a session: acquired, renewed, promoted, released, interrupted."""

from __future__ import annotations

from ninja import Query, Router, Status

from agentmemory.api import parameters
from agentmemory.api.auth import Call
from agentmemory.api.parameters import OwnerQuery
from agentmemory.api.problems import Problem
from agentmemory.api.shapes.transcripts import ExecutionIn
from sessions_exec.api import shapes
from sessions_exec.api.shapes import (
    AcquiredOut,
    AcquireIn,
    InterruptedOut,
    PromoteIn,
    PromotionOut,
    ReleasedOut,
    RenewedOut,
    RenewIn,
)
from sessions_exec.services import executions, inbox

router = Router(tags=["Execution"])


@router.post("/sessions/{id}/execution", response={201: AcquiredOut, 404: Problem, 409: Problem})
def acquire_execution(
    request: Call,
    id: str,  # noqa: A002 - as in the path
    body: AcquireIn,
    query: Query[OwnerQuery],
) -> Status[AcquiredOut]:
    """Take the right to run the session. One that has expired is recovered first; a live one stands (409)."""
    session = parameters.session_named(request.auth, id, query)
    row = executions.acquire(session=session, holder=body.owner, seconds=body.ttl_seconds)
    return Status(201, shapes.acquired_out(row))


@router.patch("/sessions/{id}/execution", response={200: RenewedOut, 404: Problem, 409: Problem})
def renew_execution(
    request: Call,
    id: str,  # noqa: A002
    body: RenewIn,
    query: Query[OwnerQuery],
) -> RenewedOut:
    """Hold on for another term, and move the phase. Dispatch nothing before a move to `unknown` was answered."""
    row = executions.renew(
        session=parameters.session_named(request.auth, id, query),
        held=held(body),
        phase=body.phase,
        assistant_uid=body.assistant_uid,
    )
    return shapes.renewed_out(row)


@router.post("/sessions/{id}/execution/promote", response={200: PromotionOut, 404: Problem, 409: Problem})
def promote_inputs(
    request: Call,
    id: str,  # noqa: A002
    body: PromoteIn,
    query: Query[OwnerQuery],
) -> PromotionOut:
    """Make the inputs messages whose time has come. When there are none at `idle`, release."""
    session = parameters.session_named(request.auth, id, query)
    rows = inbox.promote(session=session, guard=held(body), boundary=body.boundary)
    return PromotionOut(items=[shapes.promoted_out(row) for row in rows])


@router.delete("/sessions/{id}/execution", response={200: ReleasedOut, 404: Problem, 409: Problem})
def release_execution(
    request: Call,
    id: str,  # noqa: A002
    body: ExecutionIn,
    query: Query[OwnerQuery],
) -> ReleasedOut:
    """Give the session back, and hear how many inputs wait in it."""
    released = executions.release(session=parameters.session_named(request.auth, id, query), held=held(body))
    return ReleasedOut(released=True, pending=released.pending)


@router.post("/sessions/{id}/interrupt", response={200: InterruptedOut, 404: Problem})
def interrupt_execution(request: Call, id: str, query: Query[OwnerQuery]) -> InterruptedOut:  # noqa: A002
    """Ask whoever runs the session to stop. They hear of it at the next renewal."""
    session = parameters.session_named(request.auth, id, query)
    return InterruptedOut(interrupted=executions.interrupt(session=session))


def held(body: ExecutionIn) -> executions.Held:
    """The execution that a call names. Raises `LeaseLost` for a name that none has."""
    return executions.guard(execution_id=body.id, epoch=body.epoch)
