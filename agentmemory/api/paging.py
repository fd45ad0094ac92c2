"""Pages by keyset: what was added or removed meanwhile never makes a row appear twice or not at all.

The place where a page ends is opaque to clients, and proves nothing: a page starts from what its caller may see.
"""

from __future__ import annotations

import base64
import binascii
import json
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

from django.db.models import Model, Q, QuerySet
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from agentmemory.api.fields import LARGEST_NUMBER
from agentmemory.errors import Invalid

Row = TypeVar("Row", bound=Model)
Item = TypeVar("Item")

_NEWEST: TypeAdapter[tuple[datetime, UUID]] = TypeAdapter(tuple[datetime, UUID])


class Page(BaseModel, Generic[Item]):
    """One page of a list."""

    items: list[Item]
    next: str | None = Field(default=None, description="Where the next page begins: give it as `after`.")


def newest_update_first(rows: QuerySet[Row], *, after: str | None, limit: int) -> tuple[list[Row], str | None]:
    """A page of rows that are ordered by `-updated_at, -id`, and where the next one begins."""
    if after is not None:
        at, pk = _read(after, _NEWEST)
        rows = rows.filter(Q(updated_at__lt=at) | Q(id__lt=pk), updated_at__lte=at)
    found = list(rows[: limit + 1])
    if len(found) <= limit:
        return found, None
    last: Any = found[limit - 1]
    return found[:limit], _write([last.updated_at.astimezone(UTC).isoformat(), str(last.pk)])


def by_number(
    rows: QuerySet[Row], *, after: str | None, limit: int, descending: bool = False
) -> tuple[list[Row], str | None]:
    """A page of rows that are ordered by their numeric primary key, and where the next one begins."""
    if after is not None:
        (pk,) = _read(after, _NUMBER)
        rows = rows.filter(pk__lt=pk) if descending else rows.filter(pk__gt=pk)
    found = list(rows[: limit + 1])
    return found[:limit], _write([found[limit - 1].pk]) if len(found) > limit else None


_NUMBER: TypeAdapter[tuple[int]] = TypeAdapter(tuple[int])


def _write(place: list[Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def _read(after: str, shape: TypeAdapter[Any]) -> Any:
    try:
        place = shape.validate_json(base64.urlsafe_b64decode(after.encode("ascii") + b"=="))
        if isinstance(place[0], datetime):
            return place[0].astimezone(UTC), place[1]
        if abs(place[0]) > LARGEST_NUMBER:
            raise ValueError("beyond every row")
    except (ValidationError, ValueError, OverflowError, binascii.Error) as error:
        raise Invalid("It does not come from a page of this list.", field="query.after") from error
    return place
