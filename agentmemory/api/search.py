"""Finding memories, and what an agent gets at start-up."""

from __future__ import annotations

from typing import Annotated

from ninja import Query, Router
from pydantic import BaseModel, Field

from agentmemory.api import parameters
from agentmemory.api.auth import Call
from agentmemory.api.fields import SearchLimit, Text
from agentmemory.api.parameters import FoundQuery, OwnerQuery
from agentmemory.api.problems import Problem
from agentmemory.api.shapes import search as shapes
from agentmemory.api.shapes.search import ContextOut, ResultsOut, TalkOut
from agentmemory.search import ranking, talk
from agentmemory.services import context

MOST_NEIGHBOURS = 10

router = Router(tags=["Search"])


class SearchQuery(FoundQuery):
    """What is looked for."""

    q: Text
    tag: Text | None = None
    limit: SearchLimit = 10
    explain: bool = False


class TalkQuery(OwnerQuery):
    """What is looked for in what was said."""

    q: Text
    limit: SearchLimit = 10
    neighbours: Annotated[int, Field(ge=0, le=MOST_NEIGHBOURS)] = 1


class ContextQuery(BaseModel):
    """What the agent is about to do, and how much room there is."""

    q: Text | None = None
    max_chars: Annotated[int, Field(ge=1, le=100_000)] = context.MAX_CHARS


@router.get("/search", response={200: ResultsOut, 404: Problem}, exclude_unset=True)
def search_memories(request: Call, query: Query[SearchQuery]) -> ResultsOut:
    """Memories that have to do with `q`, the best first; none where nothing does.

    What is returned counts as accessed.
    """
    results = ranking.search(
        caller=request.auth,
        q=query.q,
        scope=query.scope,
        origin=query.origin,
        tag=query.tag,
        owner=parameters.owner_of_scope(request.auth, query),
        limit=query.limit,
        explain=query.explain,
    )
    items = [shapes.found_out(found) for found in results.items]
    return ResultsOut(items=items, next=None, pending=results.pending)


@router.get("/transcripts/search", response={200: TalkOut, 404: Problem})
def search_transcripts(request: Call, query: Query[TalkQuery]) -> TalkOut:
    """Messages of the agent that have to do with `q`, the best first, with those that were said around them.

    What was never distilled is found, too. What was taken back or replaced is not.
    """
    agent = parameters.acting_agent(request.auth, query.owner)
    results = talk.search(caller=request.auth, agent=agent, q=query.q, limit=query.limit, neighbours=query.neighbours)
    return TalkOut(items=[shapes.said_out(found) for found in results.items], next=None, pending=results.pending)


@router.get("/context", response={200: ContextOut})
def read_context(request: Call, query: Query[ContextQuery]) -> ContextOut:
    """What an agent gets at start-up: core memories, those that concern `q`, and both as a block for a prompt.

    The block is marked as recorded data, and never over `max_chars`. Counts no access.
    """
    return shapes.context_out(context.build(caller=request.auth, q=query.q, max_chars=query.max_chars))
