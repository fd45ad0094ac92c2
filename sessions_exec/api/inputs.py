"""Prompts that are sent to a session, whoever runs it."""

from __future__ import annotations

from ninja import Query, Router, Status

from agentmemory.api import paging, parameters
from agentmemory.api.auth import Call
from agentmemory.api.fields import Limit
from agentmemory.api.paging import Page
from agentmemory.api.parameters import OwnerQuery
from agentmemory.api.problems import Problem
from sessions_exec.api import shapes
from sessions_exec.api.shapes import InputDeliveryIn, InputIn, InputOut
from sessions_exec.services import inbox

router = Router(tags=["Execution"])


class InputsQuery(OwnerQuery):
    """A page of inputs."""

    limit: Limit = 50
    after: str | None = None


@router.post(
    "/sessions/{id}/inputs",
    response={200: InputOut, 201: InputOut, 404: Problem, 409: Problem, 413: Problem, 429: Problem},
)
def admit_input(
    request: Call,
    id: str,  # noqa: A002 - as in the path
    body: InputIn,
    query: Query[OwnerQuery],
) -> Status[InputOut]:
    """Admit a prompt: stored before anything is scheduled. Repeating it exactly gives what is stored (200)."""
    session = parameters.session_named(request.auth, id, query)
    row, created = inbox.admit(
        session=session, uid=body.id, prompt=body.prompt, delivery=body.delivery, resume=body.resume
    )
    return Status(201 if created else 200, shapes.input_out(row))


@router.get("/sessions/{id}/inputs", response={200: Page[InputOut], 404: Problem})
def list_inputs(request: Call, id: str, query: Query[InputsQuery]) -> Page[InputOut]:  # noqa: A002
    """What waits and why, in the order of admission."""
    waiting = inbox.pending(session=parameters.session_named(request.auth, id, query))
    rows, following = paging.by_number(waiting, after=query.after, limit=query.limit)
    return Page(items=shapes.inputs_out(rows), next=following)


@router.patch("/sessions/{id}/inputs/{rest:input}", response={200: InputOut, 404: Problem, 409: Problem})
def change_input(
    request: Call,
    id: str,  # noqa: A002
    input: str,  # noqa: A002
    body: InputDeliveryIn,
    query: Query[OwnerQuery],
) -> InputOut:
    """Let a waiting input steer, or queue."""
    session = parameters.session_named(request.auth, id, query)
    uid = parameters.storable_or_absent(input)
    return shapes.input_out(inbox.flip(session=session, uid=uid, delivery=body.delivery))


@router.delete("/sessions/{id}/inputs/{rest:input}", response={200: InputOut, 404: Problem, 409: Problem})
def cancel_input(
    request: Call,
    id: str,  # noqa: A002
    input: str,  # noqa: A002
    query: Query[OwnerQuery],
) -> InputOut:
    """Take a waiting input back."""
    session = parameters.session_named(request.auth, id, query)
    return shapes.input_out(inbox.cancel(session=session, uid=parameters.storable_or_absent(input)))
