"""How far sessions have been distilled, and asking for a pass now."""

from __future__ import annotations

from ninja import Query, Router, Status
from pydantic import Field

from agentmemory.api import paging, parameters
from agentmemory.api.auth import Call
from agentmemory.api.paging import Page
from agentmemory.api.parameters import OwnerQuery
from agentmemory.api.problems import Problem
from agentmemory.errors import NotAllowed
from config.api import shapes
from config.api.sessions import SessionsQuery, find
from config.api.shapes import CursorOut
from distillation.services import coordinator, standings, states

router = Router(tags=["Distillation"])


class DistillQuery(OwnerQuery):
    """Whether to ask in spite of a backoff."""

    force: bool = Field(default=False, description="Space tokens alone; an agent token gets 403.")


@router.get("/distillation", response={200: Page[CursorOut], 404: Problem})
def list_cursors(request: Call, query: Query[SessionsQuery]) -> Page[CursorOut]:
    """The cursors of the sessions that the token may see, the oldest session first."""
    found = standings.listing(caller=request.auth, agent=parameters.owner_named(request.auth, query.owner))
    rows, following = paging.by_number(found, after=query.after, limit=query.limit)
    described = zip(rows, states.describe_many(rows, private=True), strict=True)
    return Page(items=[shapes.cursor_out(row, state) for row, state in described], next=following)


@router.post("/sessions/{id}/distill", response={202: CursorOut, 403: Problem, 404: Problem, 409: Problem})
def distill_session(request: Call, id: str, query: Query[DistillQuery]) -> Status[CursorOut]:  # noqa: A002
    """Ask for a pass now, also when nothing is new or one is running."""
    if query.force and request.auth.agent is not None:
        raise NotAllowed("Only a space token may force a pass.")
    session = find(request.auth, id, query)
    coordinator.request(session=session, force=query.force)
    cursor = standings.of(caller=request.auth, session=session)
    return Status(202, shapes.cursor_out(cursor, states.describe(cursor, private=True)))
