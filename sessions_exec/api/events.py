"""The log of a session, read from any number on."""

from __future__ import annotations

from typing import Annotated

from ninja import Query, Router
from pydantic import Field

from agentmemory.api import parameters
from agentmemory.api.auth import Call
from agentmemory.api.fields import Limit, Seq
from agentmemory.api.paging import Page
from agentmemory.api.parameters import OwnerQuery
from agentmemory.api.problems import Problem
from sessions_exec.api import shapes
from sessions_exec.api.shapes import EventOut
from sessions_exec.services import events, waiting

router = Router(tags=["Execution"])


class EventsQuery(OwnerQuery):
    """A piece of the log. `after` is the number of the last event that is known."""

    limit: Limit = 50
    after: Seq = 0
    wait: Annotated[float, Field(ge=0, le=waiting.LONGEST)] = Field(
        default=0.0, description="Seconds to wait for an event where there is none."
    )


@router.get("/sessions/{id}/events", response={200: Page[EventOut], 404: Problem, 429: Problem})
def list_events(request: Call, id: str, query: Query[EventsQuery]) -> Page[EventOut]:  # noqa: A002
    """The log, in order and without gaps. Reading on from the last number that was seen misses nothing."""
    session = parameters.session_named(request.auth, id, query)
    found = events.page(session=session, after=query.after, limit=query.limit)
    if not found and query.wait:
        waiting.wait(session=session, after=query.after, seconds=query.wait)
        found = events.page(session=session, after=query.after, limit=query.limit)
    more = bool(found) and events.newest(session=session) > found[-1].seq
    return Page(items=[shapes.event_out(event) for event in found], next=str(found[-1].seq) if more else None)
