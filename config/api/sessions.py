"""Sessions: created, adopted, listed, read and deleted."""

from __future__ import annotations

from typing import Annotated, Literal

from ninja import Query, Router, Status
from pydantic import Field, WithJsonSchema

from agentmemory.api import paging, parameters
from agentmemory.api.auth import Call
from agentmemory.api.fields import Limit
from agentmemory.api.paging import Page
from agentmemory.api.parameters import OwnerQuery
from agentmemory.api.problems import Problem
from agentmemory.api.shapes.transcripts import RemovedOut, SessionIn
from agentmemory.callers import Caller
from agentmemory.models import Session
from agentmemory.services import sessions
from config.api import shapes
from config.api.shapes import SessionOut
from distillation.services import standings
from sessions_exec.services import executions

router = Router(tags=["Sessions"])

NewName = Annotated[str, WithJsonSchema({"type": "string", "pattern": r"^[A-Za-z0-9._:@-]{1,200}$"})]


class SessionsQuery(OwnerQuery):
    """A page of sessions."""

    limit: Limit = 50
    after: str | None = None


class DeletionQuery(OwnerQuery):
    """What becomes of the memories that rest on a session."""

    memories: Literal["keep"] | None = Field(default=None, description="`keep`: they stay as they are.")


def find(caller: Caller, name: str, query: OwnerQuery) -> Session:
    """The session that a call names. Raises `NotFound`, `Invalid`."""
    return parameters.session_named(caller, name, query)


def describe(caller: Caller, found: list[Session]) -> list[SessionOut]:
    """Sessions with how far each was distilled, and who runs it."""
    distilled = standings.positions(caller=caller, sessions=found)
    run = executions.live(found)
    return [
        shapes.session_out(session, distilled_seq=distilled.get(session.pk, 0), execution=run.get(session.pk))
        for session in found
    ]


@router.get("/sessions", response={200: Page[SessionOut], 404: Problem})
def list_sessions(request: Call, query: Query[SessionsQuery]) -> Page[SessionOut]:
    """The sessions that the token may see, the newest first."""
    found = sessions.listing(caller=request.auth, agent=parameters.owner_named(request.auth, query.owner))
    rows, following = paging.by_number(found, after=query.after, limit=query.limit, descending=True)
    return Page(items=describe(request.auth, rows), next=following)


@router.put("/sessions/{id}", response={200: SessionOut, 201: SessionOut, 404: Problem})
def put_session(
    request: Call,
    id: NewName,  # noqa: A002 - as in the path
    query: Query[OwnerQuery],
    body: SessionIn | None = None,
) -> Status[SessionOut]:
    """Create (201) or adopt (200) the agent's session of this id: 1 to 200 of letters, digits and `._:@-`."""
    wanted = body or SessionIn()
    agent = parameters.acting_agent(request.auth, query.owner)
    session, created = sessions.adopt(
        agent=agent, name=id, title=wanted.title, metadata=wanted.metadata, complete=wanted.complete
    )
    return Status(201 if created else 200, describe(request.auth, [session])[0])


@router.get("/sessions/{id}", response={200: SessionOut, 404: Problem})
def read_session(request: Call, id: str, query: Query[OwnerQuery]) -> SessionOut:  # noqa: A002
    """One session."""
    return describe(request.auth, [find(request.auth, id, query)])[0]


@router.delete("/sessions/{id}", response={200: RemovedOut, 404: Problem, 409: Problem})
def delete_session(request: Call, id: str, query: Query[DeletionQuery]) -> RemovedOut:  # noqa: A002
    """Delete a session with its messages. Memories that rest on it alone are withdrawn, or kept on request."""
    sessions.delete(session=find(request.auth, id, query), keep_memories=query.memories == "keep")
    return RemovedOut(deleted=True)
