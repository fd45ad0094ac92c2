"""The types of single values, as they come in and as they go out."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticCustomError

from agentmemory.services import limits, transcripts

LARGEST_NUMBER = 2**63 - 1
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,12})?([Zz]|[+-]\d\d:\d\d)\Z", re.ASCII)


def _storable(value: str) -> str:
    if not limits.storable(value):
        raise PydanticCustomError("unstorable", "NUL and lone surrogates cannot be kept")
    return value


def _uid(value: str) -> str:
    if not value.strip() or len(value) > transcripts.UID_LENGTH:
        raise PydanticCustomError("uid", "Not blank, and at most 200 characters")
    return _storable(value)


def _moment(value: Any) -> datetime:
    """A time with its offset, in UTC: what has none could be meant in any zone."""
    if not isinstance(value, str) or not _RFC3339.match(value):
        raise PydanticCustomError("moment", "A time with its offset, as in 2026-01-31T12:00:00Z")
    try:
        return datetime.fromisoformat(value.upper()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise PydanticCustomError("moment", "There is no such time") from error


def _whole(value: Any) -> Any:
    """JSON has one kind of number: 1.0 is the integer 1."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _content(value: Any) -> Any:
    if not isinstance(value, str | list):
        raise PydanticCustomError("content", "A string or a list of blocks")
    return value


def rfc3339(value: datetime) -> str:
    """A time in UTC as RFC 3339 has it."""
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


Whole = Annotated[int, BeforeValidator(_whole)]
"""An integer in a body."""

NOT_BLANK = r"[^\s\x1c-\x1f\x85]"
"""A pattern for the document: with something in it that is no white space."""

Text = Annotated[str, AfterValidator(_storable)]
"""A text that the database can hold."""

Uid = Annotated[str, AfterValidator(_uid), WithJsonSchema({"type": "string", "maxLength": 200, "pattern": NOT_BLANK})]

Moment = Annotated[datetime, BeforeValidator(_moment), WithJsonSchema({"type": "string", "format": "date-time"})]

Prompt = Annotated[
    Any,
    AfterValidator(_content),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "pattern": NOT_BLANK}, {"type": "array", "items": {}, "minItems": 1}]}
    ),
]
"""What a message says, where it must say something."""

Content = Annotated[
    Any,
    AfterValidator(_content),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {}}]}),
]
"""What a message says: a string or a list of blocks. Anything storable or not: it is cleaned at the door (R3)."""

Uids = Annotated[list[Uid], Field(max_length=1_000, fail_fast=True)]
Texts = Annotated[list[Text], Field(max_length=1_000, fail_fast=True)]
"""Lists end at their first fault: a body of a million of them shall not make a million errors (A4)."""

Limit = Annotated[int, Field(ge=1, le=500)]
SearchLimit = Annotated[int, Field(ge=1, le=50)]
Seq = Annotated[int, Field(ge=0, le=LARGEST_NUMBER)]

Timestamp = Annotated[datetime, PlainSerializer(rfc3339), WithJsonSchema({"type": "string", "format": "date-time"})]
