"""What words find and what vectors find, as one ranking: the same for memories and for transcripts (M7, M10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import models

from agentmemory.search import embeddings, lexical, spelling, vectors
from agentmemory.search.vector_tables import Table

POOL = 100
"""So many rows of each leg are put together. Of each the other leg's score is known, so that more change nothing."""

TEXT, VECTOR = "text", "vector"


@dataclass(frozen=True)
class Hit:
    """A row that a search found, by words, by its vector, or both. `score` is from 0 to 1."""

    pk: Any
    score: float
    text: lexical.Hit | None
    near: vectors.Near | None
    asked: str
    embedder: embeddings.Embedder | None

    @property
    def matched(self) -> tuple[str, ...]:
        """The legs that found it. One that words found may be near, but not near enough to be found by that alone."""
        by_vector = self.near is not None and self.embedder is not None and self.near.score >= self.embedder.floor
        return (*((TEXT,) if self.text is not None else ()), *((VECTOR,) if by_vector else ()))

    def explained(self) -> dict[str, Any]:
        """Each leg's score and rank: of words, which of them; of vectors, the model and the cosine."""
        legs: dict[str, Any] = {}
        if self.text is not None:
            words = {"words": list(self.text.words), "asked": self.asked}
            legs[TEXT] = {"score": self.text.score, "rank": self.text.rank, **words}
        if self.near is not None:
            model = embeddings.model(self.embedder) if self.embedder is not None else None
            legs[VECTOR] = {"score": self.near.score, "rank": self.near.rank, "model": model}
        return legs


@dataclass(frozen=True)
class Hits:
    """The rows found, the best first; `pending` rows in view have no vector yet (0 without the vector leg)."""

    items: Sequence[Hit] = field(default_factory=tuple)
    pending: int = 0


def find(view: models.QuerySet[Any], table: Table, q: str, *, limit: int, newest: str) -> Hits:
    """The rows of `view` that have most to do with `q`; of equals, the one with the greater `newest`.

    `view` must be what the caller may see, and has a tsvector `search`; `table` holds the vectors of its rows.
    """
    embedder = embeddings.current()
    if embedder is None:
        found, asked = _by_text(view, q, limit=limit, newest=newest, forgiving=True)
        return Hits(_fused(found, [], [], asked=asked, embedder=None))
    pool = max(POOL, limit)
    near: list[vectors.Near] = []
    farther: list[vectors.Near] = []
    query = embeddings.of_query(embedder, q)
    if query is not None:
        near = vectors.nearest(view, table, query, embedder=embedder, limit=pool, newest=newest)
    found, asked = _by_text(view, q, limit=pool, newest=newest, forgiving=not near)
    if query is not None and near:
        others = {hit.pk for hit in found} - {each.pk for each in near}
        farther = vectors.alike(list(others), table, query, embedder=embedder)
    items = _fused(found, near, farther, asked=asked, embedder=embedder)
    return Hits(items[:limit], vectors.pending(view, table, embedder=embedder))


def _by_text(
    view: models.QuerySet[Any], q: str, *, limit: int, newest: str, forgiving: bool
) -> tuple[Sequence[lexical.Hit], str]:
    """What the words of `q` find, and the words that found it: typing errors are forgiven when nothing else matches."""
    if hits := lexical.rank(view, q, limit=limit, newest=newest):
        return hits, q
    corrected = spelling.corrected(view, q, newest=newest) if forgiving else ""
    return (lexical.rank(view, corrected, limit=limit, newest=newest) if corrected else []), corrected


def _fused(
    found: Sequence[lexical.Hit],
    near: Sequence[vectors.Near],
    farther: Sequence[vectors.Near],
    *,
    asked: str,
    embedder: embeddings.Embedder | None,
) -> list[Hit]:
    """Each leg's scores as shares of its best, in equal parts: both legs' ranges differ from query to query.

    The whole is scaled by what the better leg's best is worth, so that a poor match stays one. A leg that found
    nothing has no part. Equals stay as the legs have them, which put the newest first.
    """
    by_text = {hit.pk: hit for hit in found}
    by_vector = {each.pk: each for each in [*near, *farther]}
    best_text = max((hit.score for hit in found), default=0.0)
    best_near = max((each.score for each in near), default=0.0)
    legs = max(1, (best_text > 0) + (best_near > 0))
    hits = []
    for pk in {**by_text, **by_vector}:
        text, vector = by_text.get(pk), by_vector.get(pk)
        share = text.score / best_text if text is not None and best_text > 0 else 0.0
        if vector is not None:
            share += max(vector.score, 0.0) / best_near
        score = round(share / legs * min(max(best_text, best_near), 1.0), 6)
        hits.append(Hit(pk, score, text, vector, asked, embedder))
    return sorted(hits, key=_order)


def _order(hit: Hit) -> tuple[float, float, float]:
    """Best first. Equals as the legs have them, which put the newest first."""
    last = float("inf")
    by_text = hit.text.rank if hit.text is not None else last
    by_vector = hit.near.rank if hit.near is not None and hit.near.rank is not None else last
    return (-hit.score, by_text, by_vector)
