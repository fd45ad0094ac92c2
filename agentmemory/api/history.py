"""The versions of memories."""

from __future__ import annotations

from uuid import UUID

from ninja import Query, Router
from pydantic import BaseModel

from agentmemory.api import paging
from agentmemory.api.auth import Call
from agentmemory.api.fields import Limit
from agentmemory.api.paging import Page
from agentmemory.api.problems import Problem
from agentmemory.api.shapes import history as shapes
from agentmemory.api.shapes.history import VersionOut
from agentmemory.errors import NotFound
from agentmemory.services import history

router = Router(tags=["Memories"])


class HistoryQuery(BaseModel):
    """A page of versions."""

    limit: Limit = 50
    after: str | None = None


@router.get("/history/{id}", response={200: Page[VersionOut], 404: Problem})
def list_versions(request: Call, id: str, query: Query[HistoryQuery]) -> Page[VersionOut]:  # noqa: A002 - as in the path
    """Every version of a memory that the token may see, the first one first: who, when, what."""
    versions = history.versions(caller=request.auth, memory_id=_uuid(id))
    rows, following = paging.by_number(versions, after=query.after, limit=query.limit)
    return Page(items=[shapes.version_out(row) for row in rows], next=following)


def _uuid(value: str) -> UUID:
    try:
        return UUID(value)
    except ValueError as error:
        raise NotFound("There is no such memory.") from error
