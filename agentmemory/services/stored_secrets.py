"""Secrets that were stored before their kind was known, replaced afterwards (D13), in the history too."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import models, transaction
from django.utils import timezone

from agentmemory import authorship, speech
from agentmemory.authorship import Author
from agentmemory.models import (
    Agent,
    Consolidation,
    Memory,
    MemoryEvent,
    MemorySource,
    Message,
    MessageEdge,
    Session,
    StoredAnswer,
)
from agentmemory.services import redaction

ROWS_AT_ONCE = 500


@dataclass(frozen=True, kw_only=True)
class Place:
    """The columns of a model that may hold what somebody said."""

    model: type[models.Model]
    columns: Sequence[str]
    encoded: bool = False
    """Whether they hold JSON, or text, as bytes."""


PLACES = [
    Place(model=Session, columns=("title", "metadata")),
    Place(model=Agent, columns=("instructions",)),
    Place(model=Message, columns=("content", "retraction_reason")),
    Place(model=MessageEdge, columns=("reason",)),
    Place(model=Memory, columns=("key", "content", "context", "tags")),
    Place(model=MemorySource, columns=("quote",)),
    Place(model=MemoryEvent, columns=("key", "content", "context", "tags")),
    Place(model=Consolidation, columns=("tags_added", "reason", "undone_reason")),
    # What was answered to calls that may come again: for a day, with what is in it.
    Place(model=StoredAnswer, columns=("body",), encoded=True),
]
"""Apps further left add theirs when they are ready: they know this app, and it knows none of them."""


def redact(
    *, author: Author, dry_run: bool = False, on_batch: Callable[[int], None] | None = None
) -> dict[str, Counter[str]]:
    """Replace what is found, in batches of their own transaction. Returns the kinds found, by model.

    Repeating it changes nothing more, so it can be stopped at any time.
    """
    found: dict[str, Counter[str]] = {}
    for place in PLACES:
        counts: Counter[str] = Counter()
        for rows in _batches(place.model):
            _redact_batch(place, rows, counts, author=author, dry_run=dry_run)
            if on_batch is not None:
                on_batch(len(rows))
        found[str(place.model._meta.verbose_name_plural)] = counts
    return {name: counts for name, counts in found.items() if counts}


def _batches(model: type[models.Model]) -> Iterator[list[Any]]:
    """All rows in pieces, by their key: nothing is skipped when rows come or go meanwhile."""
    after: Any = None
    while True:
        rows = model._default_manager.order_by("pk")
        piece = list((rows if after is None else rows.filter(pk__gt=after))[:ROWS_AT_ONCE])
        if not piece:
            return
        yield piece
        after = piece[-1].pk


def _redact_batch(place: Place, rows: Sequence[Any], counts: Counter[str], *, author: Author, dry_run: bool) -> None:
    with transaction.atomic(), authorship.acting(author, reason="secrets redacted"), authorship.purging():
        for row in rows:
            changes: dict[str, Any] = {}
            for column in place.columns:
                value = getattr(row, column)
                clean = redaction.redact(_decoded(value) if place.encoded else value)
                if clean.counts:
                    counts.update(clean.counts)
                    changes[column] = _encoded(clean.value) if place.encoded else clean.value
            if changes and not dry_run:
                # Only over what was read: somebody may have written meanwhile, and the next run sees that.
                as_read = {column: getattr(row, column) for column in changes}
                same = place.model._default_manager.filter(pk=row.pk, **as_read)
                same.update(**changes, **_derived(row, changes))


def _decoded(value: bytes | memoryview) -> Any:
    """The JSON that bytes hold, or else their text."""
    text = bytes(value).decode("utf-8", "replace")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _encoded(value: Any) -> bytes:
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def _derived(row: Any, changes: dict[str, Any]) -> dict[str, Any]:
    """What follows from the redacted columns: the visible text of a message, the version of a memory."""
    if isinstance(row, Message) and "content" in changes:
        return {"text": speech.visible_text(changes["content"])}
    if isinstance(row, Memory):
        return {"version": row.version + 1, "updated_at": timezone.now()}
    return {}
