"""Memories: written, read, listed and deleted by key."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpResponse
from ninja import Header, Query, Router, Status
from pydantic import ValidationError

from agentmemory.api import paging, parameters, problems
from agentmemory.api.auth import Call
from agentmemory.api.paging import Page
from agentmemory.api.parameters import FoundQuery, ListQuery, WriteQuery
from agentmemory.api.problems import Problem
from agentmemory.api.shapes import memories as shapes
from agentmemory.api.shapes.memories import (
    BatchIn,
    BatchItemOut,
    BatchMemoryIn,
    BatchOut,
    DeletedOut,
    MemoryIn,
    MemoryOut,
    MemoryWithSourcesOut,
)
from agentmemory.errors import VersionMoved
from agentmemory.models import Agent
from agentmemory.services import memories, sources

LARGEST_BATCH = 500

router = Router(tags=["Memories"])
IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        description='`"VERSION"`, a list of them, or `*`.',
        pattern=r'^(\*|(W/)?"[^" ,]*"( *, *(W/)?"[^" ,]*")*)$',
    ),
]
IfNoneMatch = Annotated[
    str | None,
    Header(alias="If-None-Match", description="`*` creates only.", pattern=r"^\*$"),
]


@router.get("/memories", response={200: Page[MemoryOut], 404: Problem})
def list_memories(request: Call, query: Query[ListQuery]) -> Page[MemoryOut]:
    """The memories that the token may see, newest update first. Looking through them counts no access."""
    found = memories.listing(
        caller=request.auth,
        scope=query.scope,
        origin=query.origin,
        tag=query.tag,
        owner=parameters.owner_of_scope(request.auth, query),
    )
    rows, following = paging.newest_update_first(found, after=query.after, limit=query.limit)
    return Page(items=[shapes.memory_out(row) for row in rows], next=following)


@router.put("/memories/{rest:key}", response={200: MemoryOut, 201: MemoryOut, 404: Problem, 412: Problem})
def write_memory(
    request: Call,
    response: HttpResponse,
    key: str,
    body: MemoryIn,
    query: Query[WriteQuery],
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> Status[MemoryOut]:
    """Write a curated memory: new (201), or over the one of this key (200).

    The key is the whole rest of the path, URL-encoded, slashes and all: any printable character, up to 200, but it may
    not begin with `distilled:`.
    """
    written = memories.put(
        caller=request.auth,
        draft=body.draft(key=key, owner=_owner_for_write(request, body, query)),
        expected=parameters.expected(if_match, if_none_match),
        keep_secrets=query.secrets == "keep",
    )
    response["ETag"] = f'"{written.memory.version}"'
    return Status(201 if written.created else 200, shapes.memory_out(written.memory))


@router.get("/memories/{rest:key}", response={200: MemoryWithSourcesOut, 404: Problem})
def read_memory(request: Call, response: HttpResponse, key: str, query: Query[FoundQuery]) -> MemoryWithSourcesOut:
    """The memory of this key, with what it rests on. Counts as one access.

    In this order: own curated, own distilled, shared curated, shared distilled.
    """
    owner = parameters.owner_of_scope(request.auth, query)
    memory = memories.get(caller=request.auth, key=key, scope=query.scope, origin=query.origin, owner=owner)
    response["ETag"] = f'"{memory.version}"'
    return shapes.memory_with_sources(memory, sources.of(memory, caller=request.auth))


@router.delete("/memories/{rest:key}", response={200: DeletedOut, 404: Problem, 412: Problem}, exclude_none=True)
def delete_memory(request: Call, key: str, query: Query[FoundQuery], if_match: IfMatch = None) -> DeletedOut:
    """Delete one memory of this key, in the order of reading; after it the next answers. An operator can undo it."""
    gone = memories.delete(
        caller=request.auth,
        key=key,
        scope=query.scope,
        origin=query.origin,
        owner=parameters.owner_of_scope(request.auth, query),
        expected=parameters.expected(if_match, None),
    )
    return DeletedOut(deleted=gone is not None, id=gone)


@router.post("/batch", response={200: BatchOut, 404: Problem, 413: Problem})
def write_batch(request: Call, body: BatchIn, query: Query[WriteQuery]) -> BatchOut:
    """Write up to 500 memories in one transaction. One that is refused refuses none of the others."""
    if len(body.memories) > LARGEST_BATCH:
        raise problems.TooLarge(f"A batch may have {LARGEST_BATCH} memories; this has {len(body.memories):,}.")
    owner = parameters.owner_named(request.auth, query.owner)
    read = [_draft_or_refusal(item, owner) for item in body.memories]
    drafts = [item for item in read if isinstance(item, memories.Draft)]
    done = iter(memories.put_many(caller=request.auth, drafts=drafts, keep_secrets=query.secrets == "keep"))
    return BatchOut(items=[_outcome(next(done)) if isinstance(item, memories.Draft) else item for item in read])


def _owner_for_write(request: Call, body: MemoryIn, query: WriteQuery) -> Agent | None:
    """The owner that a space token names for what is `mine`. One named for what is shared is a mistake, and refused."""
    if request.auth.agent is None and query.owner is not None:
        return parameters.owner_of_scope(request.auth, parameters.ScopeQuery(owner=query.owner, scope=body.scope))
    return parameters.owner_named(request.auth, query.owner)


def _draft_or_refusal(item: Any, owner: Agent | None) -> memories.Draft | BatchItemOut:
    try:
        body = BatchMemoryIn.model_validate(item)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        key = item.get("key") if isinstance(item, dict) else None
        message = f"{place}: {first['msg']}" if place else first["msg"]
        return BatchItemOut(key=key if isinstance(key, str) else None, status=422, error=message)
    return body.draft(key=body.key, owner=owner)


def _outcome(item: memories.BatchItem) -> BatchItemOut:
    if item.written is not None:
        memory = item.written.memory
        status = 201 if item.written.created else 200
        return BatchItemOut(key=memory.key, status=status, id=memory.pk, version=memory.version)
    status = 412 if isinstance(item.error, VersionMoved) else 422
    return BatchItemOut(key=item.draft.key, status=status, error=str(item.error))
