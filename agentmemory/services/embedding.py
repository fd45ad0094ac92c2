"""Vectors made in the background: for new rows, for rows whose words changed, and for all when the model does (M7).

State says what is due, so work that was cut short goes on where it was. A batch is claimed and committed, embedded
with no transaction open, and stored row by row where the words are still those that were read.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from django.conf import settings
from django.db import connection

from agentmemory.search import embeddings, vector_tables, wording
from agentmemory.search.embeddings import Embedder
from agentmemory.search.vector_tables import Table

BATCH = 32
RUN_SECONDS = 20.0
"""So long one run goes on at most; what is left is for the next."""

CLAIM_SECONDS = 120
"""Rows of a batch whose maker vanished are due again after so long."""

_DUE = "(model < %(model)s OR model > %(model)s) AND (claimed_until IS NULL OR claimed_until < clock_timestamp())"
_IS_DUE = f"SELECT EXISTS (SELECT FROM {{table}} WHERE {_DUE})"  # noqa: S608 - made of the constants above

_WAITING = "SELECT count(*) FROM {table} WHERE model < %(model)s OR model > %(model)s"

# Rows that somebody else has locked are about to change, or claimed: nobody waits here, so nobody waits for ever.
# What is due is materialized: a plain subquery may be run again for each row it is joined to, and claim more each time.
_CLAIM = f"""
WITH due AS MATERIALIZED (SELECT row_id FROM {{table}} WHERE {_DUE} LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
UPDATE {{table}} AS kept SET claimed_until = clock_timestamp() + %(seconds)s * interval '1 second'
FROM due
WHERE kept.row_id = due.row_id
RETURNING kept.row_id, kept.version
"""  # noqa: S608 - made of the constants above

# The version is looked at under the row's lock: words that changed since they were read have moved it.
_STORE = """
UPDATE {table} SET vector = %(vector)s::vector, model = %(model)s, claimed_until = NULL
WHERE row_id = %(row)s AND version = %(version)s
"""
_GONE = "DELETE FROM {table} WHERE row_id = ANY(%(rows)s)"


def prepare() -> str:
    """Make the tables of vectors where they are wanted, and take in what was there before.

    Returns why there are none, or nothing. Safe to repeat.
    """
    if embeddings.chosen() is None:
        return "AGENTMEMORY_EMBEDDER is none, or the packages of the extra `vectors` are not installed"
    obstacle = vector_tables.prepare()
    if not obstacle:
        vector_tables.tidy()
    return obstacle


def is_due() -> bool:
    """Whether some row waits for its vector, and nobody is at it."""
    embedder = embeddings.current()
    if embedder is None:
        return False
    with connection.cursor() as cursor:
        for table in vector_tables.TABLES:
            cursor.execute(_IS_DUE.format(table=table.name), {"model": embeddings.model(embedder)})
            if cursor.fetchone()[0]:
                return True
    return False


def waiting() -> int:
    """How many rows have no current vector, in all spaces together."""
    embedder = embeddings.current()
    if embedder is None:
        return 0
    with connection.cursor() as cursor:
        counts = []
        for table in vector_tables.TABLES:
            cursor.execute(_WAITING.format(table=table.name), {"model": embeddings.model(embedder)})
            counts.append(int(cursor.fetchone()[0]))
        return sum(counts)


def run() -> str:
    """Make what vectors are due, for a bounded time. Returns in one line what was done."""
    embedder = embeddings.current()
    if embedder is None:
        return "no vectors here"
    last = time.monotonic() + min(RUN_SECONDS, settings.AGENTMEMORY_TASK_TIMEOUT / 4)
    made = 0
    for table in vector_tables.TABLES:
        while time.monotonic() < last and (claimed := _claim(table, embedder)):
            made += _embed(table, claimed, embedder)
    return f"{made} vectors made"


def _claim(table: Table, embedder: Embedder) -> dict[Any, int]:
    """Rows that are due, by id, and the version of their words. They are ours for `CLAIM_SECONDS`."""
    with connection.cursor() as cursor:
        values: dict[str, Any] = {"model": embeddings.model(embedder), "seconds": CLAIM_SECONDS, "limit": BATCH}
        cursor.execute(_CLAIM.format(table=table.name), values)
        return dict(cursor.fetchall())


def _embed(table: Table, claimed: Mapping[Any, int], embedder: Embedder) -> int:
    """Make and store the vectors of claimed rows. Returns how many were stored.

    Words are read after the claim, so they are those of its version, or of a later one that will not be stored.
    """
    words = wording.of_rows(table, claimed)
    ids = list(words)
    made = embedder.embed([words[pk] for pk in ids])
    with connection.cursor() as cursor:
        cursor.execute(_GONE.format(table=table.name), {"rows": [pk for pk in claimed if pk not in words]})
    return sum(_store(table, pk, claimed[pk], vector, embedder) for pk, vector in zip(ids, made, strict=True))


def _store(table: Table, pk: Any, version: int, vector: Sequence[float] | None, embedder: Embedder) -> int:
    """Store one vector, unless the words have changed. Each by itself: who holds one lock alone is in nobody's way."""
    with connection.cursor() as cursor:
        literal = None if vector is None else embeddings.written(vector)
        values: dict[str, Any] = {"vector": literal, "model": embeddings.model(embedder), "row": pk, "version": version}
        cursor.execute(_STORE.format(table=table.name), values)
        return int(cursor.rowcount)
