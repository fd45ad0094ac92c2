"""Everything that is stored about something, for an operator who is asked for it: in every place, and bounded."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.search import SearchVectorField
from django.db import models
from django.db.models import CharField, F, Func, Q, TextField, Value
from django.db.models.functions import Cast

from agentmemory.errors import Invalid
from agentmemory.services import limits, patience
from agentmemory.services.patience import TookTooLong

MOST = 150
"""Rows that are shown of one kind: who has found so many looks for more words."""

PATIENCE_SECONDS = 30
"""Every row is looked at, whatever words it is indexed by: that takes its time, and no more than this for each kind."""

ALL_SECONDS = 180
"""What all kinds together may take; a kind whose turn comes later is looked for one second at most."""

SHORTEST = 3


@dataclass(frozen=True, kw_only=True)
class Found:
    """A row that holds the words. `kind` is `memory`, `message`, `session`, or what another place calls its own.

    `page` is the model and key of the row on whose page it is seen. `stays` says what becomes of it where no purge of
    this row alone takes the words; empty where it can be chosen for one. `why` says where they are, when the row itself
    has none of them.
    """

    kind: str
    pk: Any
    where: str
    excerpt: str
    whose: str = ""
    page: tuple[type[models.Model], Any] | None = None
    stays: str = ""
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Everything:
    """What was found, by kind in a fixed order. `cut` names the kinds of which there is more, `unfinished` those that
    were not looked through to their end: it took too long."""

    rows: Sequence[Found]
    cut: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Looked:
    """Columns of a table that are looked through; `row` is the one that has the key of the row that is shown for it.

    `why` says of that row where the words are, when they are in these columns and not in its own.
    """

    model: type[models.Model]
    columns: Sequence[str]
    row: str = "pk"
    why: str = ""


def _nobodys(row: Any) -> str:
    return ""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Rows of one kind, found by columns of their own, which come first, and by columns of what hangs on them.

    `page` says on which row's page one is seen: its own, unless told.
    """

    kind: str
    looked: Sequence[Looked]
    where: Callable[[Any], str] = str
    whose: Callable[[Any], str] = _nobodys
    page: Callable[[Any], tuple[type[models.Model], Any] | None] = lambda row: (type(row), row.pk)
    related: Sequence[str] = ()
    order: str = "-pk"
    stays: str = ""


places: list[Place] = []
"""Where words of people and agents are. Each app adds its own: a column that is in none is not looked through."""


def everything(text: str) -> Everything:
    """Rows of every kind that hold `text`, in whatever case. Raises `Invalid` for less than three characters."""
    text = limits.text(text, field="q", maximum=1_000)
    if len(text) < SHORTEST:
        raise Invalid(f"At least {SHORTEST} characters.", field="q")
    rows: list[Found] = []
    cut, unfinished = [], []
    end = time.monotonic() + ALL_SECONDS
    for place in places:
        found = _within(max(1.0, min(PATIENCE_SECONDS, end - time.monotonic())), place, text)
        if found is None:
            unfinished.append(place.kind)
            continue
        rows += found[:MOST]
        if len(found) > MOST:
            cut.append(place.kind)
    return Everything(rows=rows, cut=tuple(cut), unfinished=tuple(unfinished))


def excerpt(text: str, words: str, *, around: int = 80) -> str:
    """The place where the words stand."""
    at = max(0, text.lower().find(words.lower()) - around)
    return ("… " if at else "") + " ".join(text[at : at + len(words) + 2 * around].split())


def _within(seconds: float, place: Place, text: str) -> list[Found] | None:
    """What a place holds, one row more than is shown; None where it took longer."""
    try:
        with patience.at_most(seconds):
            return _find(place, text)
    except TookTooLong:
        return None


def _find(place: Place, text: str) -> list[Found]:
    own = place.looked[0]
    # The row's own columns last: what they hold is to be seen.
    whys = {pk: looked.why for looked in reversed(place.looked) for pk in _holding(looked, text)}
    # Without a name it would follow all there are.
    rows = own.model._default_manager.filter(pk__in=whys).select_related(*(place.related or (None,)))
    indexes = [field.name for field in own.model._meta.concrete_fields if isinstance(field, SearchVectorField)]
    return [
        Found(
            kind=place.kind,
            pk=row.pk,
            where=place.where(row)[:200],
            excerpt=_said(row, own.columns, text),
            whose=place.whose(row),
            page=place.page(row),
            stays=place.stays,
            why=whys[row.pk],
        )
        for row in rows.order_by(place.order).defer(*indexes)[: MOST + 1]
    ]


def _holding(looked: Looked, text: str) -> Sequence[Any]:
    """Keys of the rows to show for those whose columns, as text, hold the words."""
    columns = {f"as_{column}": _as_text(looked.model, column) for column in looked.columns}
    held = Q(_connector=Q.OR)
    for name, column in zip(columns, looked.columns, strict=True):
        for spelling in _spellings(text, _field(looked.model, column)):
            held |= Q(**{f"{name}__icontains": spelling})
    rows = looked.model._default_manager.order_by().annotate(**columns).filter(held)
    return list(rows.values_list(looked.row, flat=True).distinct()[: MOST + 1])


def _field(model: type[models.Model], column: str) -> Any:
    return model._meta.get_field(column)


def _as_text(model: type[models.Model], column: str) -> Any:
    """A column as it is written; bytes with a code for each that is no plain letter."""
    field = _field(model, column)
    if isinstance(field, ArrayField):
        return Func(F(column), Value("\n"), function="array_to_string", output_field=CharField())
    if isinstance(field, models.BinaryField):
        return Func(F(column), Value("escape"), function="encode", output_field=TextField())
    return Cast(column, TextField())


def _spellings(text: str, field: Any) -> set[str]:
    """The words as they are, and as they stand in JSON, which may be text within a column as well."""
    inside = {text, json.dumps(text, ensure_ascii=False)[1:-1], json.dumps(text)[1:-1]}
    return {_escaped(words) for words in inside} if isinstance(field, models.BinaryField) else inside


def _escaped(words: str) -> str:
    """As the database writes bytes out."""
    written = (chr(byte) if 0 < byte < 128 else f"\\{byte:03o}" for byte in words.encode())
    return "".join("\\\\" if letter == "\\" else letter for letter in written)


def _said(row: Any, columns: Sequence[str], text: str) -> str:
    """The words in the first column that has them; nothing where another row or version has them."""
    told = [_plain(getattr(row, column)) for column in columns]
    return excerpt(next((said for said in told if text.lower() in said.lower()), ""), text)


def _plain(value: Any) -> str:
    if isinstance(value, bytes | memoryview):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, str) or value is None:
        return value or ""
    return json.dumps(value, ensure_ascii=False, default=str)
