"""What an act is about: the rows that were named, as far as they are there and the act can be done to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import Field, QuerySet

from agentmemory.console import figures

MOST_ROWS = 100
"""Rows that one act is done to at most: each is done by itself, while somebody waits for the page."""


@dataclass(frozen=True, kw_only=True)
class Subjects:
    """The rows, and how many of those that were named are left out, and why."""

    rows: Sequence[Any]
    unfit: Sequence[Any] = ()
    missing: int = 0
    beyond: int = 0

    @property
    def left_out(self) -> str:
        """In one line; empty where all are there."""
        said = (
            (len(self.unfit), "to which it cannot be done now"),
            (self.missing, "not there, or not any more"),
            (self.beyond, f"beyond the {MOST_ROWS} that are taken at once"),
        )
        lines = [f"{figures.number(count)} {why}" for count, why in said if count]
        return f"Left out: {'; '.join(lines)}." if lines else ""


def named(ids: str, rows: QuerySet[Any], *, fits: Callable[[Any], bool]) -> Subjects:
    """The rows of these ids, between commas. What is no id is like the id of a row that is not there."""
    wanted = list(dict.fromkeys(part.strip() for part in ids.split(",") if part.strip()))
    taken = wanted[:MOST_ROWS]
    keys = [key for key in (_key(part, rows.model._meta.pk) for part in taken) if key is not None]
    found = list(rows.filter(pk__in=keys)) if keys else []
    fit, unfit = [row for row in found if fits(row)], [row for row in found if not fits(row)]
    return Subjects(rows=fit, unfit=unfit, missing=len(taken) - len(found), beyond=len(wanted) - len(taken))


def _key(text: str, field: Field[Any, Any]) -> Any:
    """A key as the column takes it; nothing where it cannot hold it."""
    while field.remote_field is not None:
        field = field.target_field  # type: ignore[attr-defined]
    try:
        value = field.to_python(text)
        field.run_validators(value)
    except ValidationError:
        return None
    return value
