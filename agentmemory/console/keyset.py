"""Pages of a list by the place where they begin: no row is counted or skipped, however many there are.

A place is what a row has in the columns of the list's order. What is written, removed or moved meanwhile makes no
row appear twice or not at all: the page begins behind that place, whether or not its row is still there.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import BooleanField, F, Func, Index, Model, Q, QuerySet, UniqueConstraint, Value
from django.db.models.lookups import GreaterThan, LessThan

AFTER, BEFORE = "a", "b"


class BadPlaceError(ValueError):
    """What was given does not come from a page of this list."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """Some rows, and the places of the pages beside it; empty where there is none."""

    rows: list[Any]
    previous: str = ""
    next: str = ""


class _Together(Func):
    """Columns that are compared as one: by the first, among equals by the second, and so on."""

    function = "ROW"
    output_field: Any = BooleanField()


def page(rows: QuerySet[Any], order: Sequence[str], *, place: str, size: int) -> Page:
    """At most `size` rows from `place` on; the first without one. Raises `BadPlaceError`.

    `order` names columns of the rows themselves, all of one direction (`-` for descending), together unique; of them
    the first alone may be null.
    """
    names, descending = [name.lstrip("-") for name in order], order[0].startswith("-")
    if not place:
        found = _read(rows, names, None, descending=descending, count=size + 1)
        return Page(rows=found[:size], next=_place(AFTER, found[size - 1], names) if len(found) > size else "")
    values = _values(rows.model, names, place[1:])
    if place[0] == BEFORE:
        found = _read(rows, names, values, descending=not descending, count=size + 1)
        if len(found) <= size:
            # So near to the beginning that it is the first page: whole, and with what has come since.
            return page(rows, order, place="", size=size)
        kept = found[:size][::-1]
        return Page(rows=kept, previous=_place(BEFORE, kept[0], names), next=_place(AFTER, kept[-1], names))
    found = _read(rows, names, values, descending=descending, count=size + 1)
    return Page(
        rows=found[:size],
        previous=_place(BEFORE, found[0], names) if found else BEFORE + place[1:],
        next=_place(AFTER, found[size - 1], names) if len(found) > size else "",
    )


def estimate(rows: QuerySet[Any]) -> int:
    """How many rows the database's planner expects: it looks at statistics and at no row."""
    (plan,) = json.loads(rows.order_by().values("pk").explain(format="json"))
    return int(plan["Plan"]["Plan Rows"])


@cache
def is_indexed(model: type[Model], name: str) -> bool:
    """Whether an index over all rows has them in the order of this column of theirs."""
    fields: Sequence[Any] = model._meta.concrete_fields
    field = next((field for field in fields if name in (field.name, field.attname)), None)
    if field is None or field.unique or field.db_index:
        return field is not None
    whole = [index for index in model._meta.indexes if _in_order(index)]
    leading = [index.fields[0].lstrip("-") for index in whole if index.fields]
    unique = [one for one in model._meta.constraints if isinstance(one, UniqueConstraint) and one.condition is None]
    return name in leading or name in [one.fields[0] for one in unique if one.fields]


def _in_order(index: Index) -> bool:
    return type(index) is Index and index.condition is None and not index.opclasses


def _read(
    rows: QuerySet[Any], names: Sequence[str], values: Sequence[Any] | None, *, descending: bool, count: int
) -> list[Any]:
    ordered = rows.order_by(*(f"-{name}" if descending else name for name in names))
    if values is None:
        return list(ordered[:count])
    found: list[Any] = []
    for part in _parts(rows.model, names, values, descending=descending):
        found += ordered.filter(part)[: count - len(found)]
        if len(found) == count:
            break
    return found


def _parts(model: type[Model], names: Sequence[str], values: Sequence[Any], *, descending: bool) -> Iterator[Any]:
    """What stands behind a place, each part a stretch of an index. Nulls are last, when descending first."""
    compare = LessThan if descending else GreaterThan
    if values[0] is not None:
        yield compare(_Together(*map(F, names)), _Together(*map(Value, values)))
    else:
        behind = compare(_Together(*map(F, names[1:])), _Together(*map(Value, values[1:])))
        yield Q(behind, **{f"{names[0]}__isnull": True})
    nullable = model._meta.get_field(names[0]).null
    if nullable and (values[0] is None) == descending:
        yield Q(**{f"{names[0]}__isnull": not descending})


def _place(side: str, row: Any, names: Sequence[str]) -> str:
    values = [getattr(row, name) for name in names]
    told = json.dumps([None if value is None else str(value) for value in values])
    return side + base64.urlsafe_b64encode(told.encode()).decode().rstrip("=")


def _values(model: type[Model], names: Sequence[str], text: str) -> list[Any]:
    try:
        told = json.loads(base64.urlsafe_b64decode(text.encode("ascii") + b"=="))
        fields: list[Any] = [model._meta.get_field(name) for name in names]
        if not isinstance(told, list) or any(value is not None and "\x00" in value for value in told):
            raise BadPlaceError
        values = [field.to_python(value) for field, value in zip(fields, told, strict=True)]
    except (binascii.Error, UnicodeError, ValueError, TypeError, ValidationError) as error:
        raise BadPlaceError from error
    if None in values[1:] or (values[0] is None and not fields[0].null):
        raise BadPlaceError
    return values
