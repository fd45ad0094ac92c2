"""Messages: appended, changed in place, taken back, read."""

from __future__ import annotations

from ninja import Query, Router, Status

from agentmemory.api import parameters
from agentmemory.api.auth import Call
from agentmemory.api.fields import Limit, Seq
from agentmemory.api.paging import Page
from agentmemory.api.parameters import OwnerQuery
from agentmemory.api.problems import Problem
from agentmemory.api.shapes import transcripts as shapes
from agentmemory.api.shapes.transcripts import (
    AppendedOut,
    DeliveryIn,
    MessageOut,
    MessagesIn,
    RetractedOut,
    RetractionsIn,
    RewindIn,
    RewoundOut,
)
from agentmemory.services import removals, sessions, transcripts
from config.api import fences
from config.api.sessions import find

router = Router(tags=["Sessions"])


class MessagesQuery(OwnerQuery):
    """A piece of a transcript. `after` is the number of a message."""

    limit: Limit = 50
    after: Seq = 0


@router.get("/sessions/{id}/messages", response={200: Page[MessageOut], 404: Problem})
def list_messages(request: Call, id: str, query: Query[MessagesQuery]) -> Page[MessageOut]:  # noqa: A002
    """The transcript, in order."""
    session = find(request.auth, id, query)
    rows = sessions.messages(session=session, after=query.after, limit=query.limit + 1)
    page = rows[: query.limit]
    following = str(page[-1].seq) if len(rows) > len(page) else None
    return Page(items=[shapes.message_out(row) for row in page], next=following)


@router.post(
    "/sessions/{id}/messages",
    response={200: AppendedOut, 201: AppendedOut, 404: Problem, 409: Problem, 413: Problem},
)
def append_messages(
    request: Call,
    id: str,  # noqa: A002
    body: MessagesIn,
    query: Query[OwnerQuery],
) -> Status[AppendedOut]:
    """Append messages in their order: 201 when some were new, 200 when all were known.

    The same uid with other content is a conflict, and nothing of the call is written.
    """
    done = transcripts.append(
        session=find(request.auth, id, query),
        messages=[message.new() for message in body.messages],
        guard=fences.guard(body.execution),
    )
    appended = AppendedOut(
        accepted=done.accepted, duplicates=done.duplicates, last_seq=done.last_seq, terminal_seq=done.terminal_seq
    )
    return Status(201 if done.accepted else 200, appended)


@router.patch("/sessions/{id}/messages/{rest:uid}", response={200: MessageOut, 404: Problem, 409: Problem})
def change_delivery(
    request: Call,
    id: str,  # noqa: A002
    uid: str,
    body: DeliveryIn,
    query: Query[OwnerQuery],
) -> MessageOut:
    """Say what became of a user message."""
    session = find(request.auth, id, query)
    message = transcripts.set_delivery(session=session, uid=parameters.storable_or_absent(uid), delivery=body.delivery)
    return shapes.message_out(message)


@router.post("/sessions/{id}/retractions", response={200: RetractedOut, 404: Problem})
def retract_messages(
    request: Call,
    id: str,  # noqa: A002
    body: RetractionsIn,
    query: Query[OwnerQuery],
) -> RetractedOut:
    """Take messages back, also such as arrive later. Memories that rest on them are reconciled."""
    session = find(request.auth, id, query)
    return RetractedOut(retracted=removals.retract(session=session, uids=body.uids, reason=body.reason or ""))


@router.post("/sessions/{id}/rewind", response={200: RewoundOut, 404: Problem, 409: Problem})
def rewind_session(request: Call, id: str, body: RewindIn, query: Query[OwnerQuery]) -> RewoundOut:  # noqa: A002
    """Remove every message after one. Numbers are never used again."""
    session = find(request.auth, id, query)
    removed = removals.rewind(session=session, after_uid=body.after_uid)
    return RewoundOut(removed=removed, last_seq=find(request.auth, id, query).last_seq)
