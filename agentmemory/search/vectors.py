"""The vector leg: rows whose words mean what a query means, whatever the words (M7, M10).

Every row in view is looked at: nothing is filtered after ranking, and nothing near is missed. An index that finds
some of the nearest rows quickly is for views so large that this takes too long; `docs/retrieval.md` says how.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db import connection, models

from agentmemory.search import embeddings, lexical
from agentmemory.search.embeddings import Embedder
from agentmemory.search.vector_tables import Table

_NEAREST = """
SELECT row_id, round((1 - (vector <=> %(query)s::vector))::numeric, 6)
FROM (§view§) AS view (id, newest) JOIN {table} ON row_id = id
WHERE model = %(model)s AND vector IS NOT NULL
ORDER BY vector <=> %(query)s::vector, newest DESC, id DESC
LIMIT %(limit)s
"""
_ALIKE = """
SELECT row_id, round((1 - (vector <=> %(query)s::vector))::numeric, 6)
FROM {table} WHERE row_id = ANY(%(ids)s) AND model = %(model)s AND vector IS NOT NULL
"""
_PENDING = """
SELECT count(*) FROM (§view§) AS view (id) JOIN {table} ON row_id = id
WHERE model < %(model)s OR model > %(model)s
"""


@dataclass(frozen=True)
class Near:
    """A row and its cosine with the query; `rank` from 1 among the rows in view, None beyond those looked for."""

    pk: Any
    score: float
    rank: int | None


def nearest(
    queryset: models.QuerySet[Any], table: Table, query: str, *, embedder: Embedder, limit: int, newest: str
) -> list[Near]:
    """The rows of `queryset` that mean most nearly what `query` (a written vector) does, above the embedder's floor."""
    found = _rows(_NEAREST, queryset.order_by().values_list("pk", newest), table, embedder, query=query, limit=limit)
    near = [Near(pk, float(score), rank) for rank, (pk, score) in enumerate(found, start=1)]
    return [each for each in near if each.score >= embedder.floor]


def alike(ids: Sequence[Any], table: Table, query: str, *, embedder: Embedder) -> list[Near]:
    """How near certain rows are, however far. They must be of the view already."""
    if not ids:
        return []
    with connection.cursor() as cursor:
        parameters: dict[str, Any] = {"query": query, "ids": list(ids), "model": embeddings.model(embedder)}
        cursor.execute(_ALIKE.format(table=table.name), parameters)
        return [Near(pk, float(score), None) for pk, score in cursor.fetchall()]


def pending(queryset: models.QuerySet[Any], table: Table, *, embedder: Embedder) -> int:
    """How many rows of `queryset` have no current vector yet. Takes time that grows with those of all views."""
    found = _rows(_PENDING, queryset.order_by().values_list("pk"), table, embedder)
    return int(found[0][0]) if found else 0


def _rows(
    statement: str, view: models.QuerySet[Any, Any], table: Table, embedder: Embedder, **values: Any
) -> list[tuple[Any, ...]]:
    try:
        sql, parameters = lexical.with_names(view)
    except EmptyResultSet:
        return []
    parameters |= {"model": embeddings.model(embedder), **values}
    with connection.cursor() as cursor:
        cursor.execute(statement.format(table=table.name).replace("§view§", sql), parameters)
        return list(cursor.fetchall())
