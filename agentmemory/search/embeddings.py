"""What makes a vector of a text, and whether there is such a thing here (M7)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

from django.conf import settings

from agentmemory.search import minilm, vector_tables

logger = logging.getLogger(__name__)

QUERIES_KEPT = 512
"""Vectors of so many queries are kept in a process: agents ask the same again."""

LONGEST = 6_000
"""Characters of a text that are handed to a model: more than models take in."""

SCHEME = 1
"""Grows when the words that vectors are made of are chosen in another way, so that every vector is made again."""


class Embedder(Protocol):
    """Makes a vector of length 1 of a text. Texts that mean the same get vectors that point the same way."""

    @property
    def name(self) -> str:
        """The model and its version."""

    @property
    def dimensions(self) -> int: ...

    @property
    def floor(self) -> float:
        """The least cosine that says that two texts have to do with each other."""

    def embed(self, texts: Sequence[str]) -> list[list[float] | None]:
        """A vector of each text, or None where it can make nothing of it."""


def model(embedder: Embedder) -> str:
    """What is written down beside a vector: another one's vectors are not compared with, and made again."""
    return f"{embedder.name}/{SCHEME}"


def current() -> Embedder | None:
    """The embedder that serves here; None where vectors are switched off, or what they need is missing."""
    embedder = chosen()
    return embedder if embedder is not None and vector_tables.are_there() else None


def chosen() -> Embedder | None:
    """The embedder that settings and installed packages make for, whatever the database can do."""
    return _installed() if settings.AGENTMEMORY_EMBEDDER != "none" else None


@lru_cache(maxsize=1)
def _installed() -> Embedder | None:
    return minilm.MiniLM() if minilm.is_installed() else None


def of_query(embedder: Embedder, text: str) -> str | None:
    """The vector of a query as the database reads it, or None where there is none."""
    return _of_query(embedder, text[:LONGEST])  # type: ignore[arg-type]  # any object is hashable


@lru_cache(maxsize=QUERIES_KEPT)
def _of_query(embedder: Any, text: str) -> str | None:
    # A model that cannot be loaded, whatever the reason, is no reason to find nothing by words.
    try:
        (vector,) = embedder.embed([text])
    except Exception as error:  # noqa: BLE001
        logger.error("no vector", extra={"action": "embedding.failed", "kind": type(error).__name__})
        return None
    return None if vector is None else written(vector)


def written(vector: Sequence[float]) -> str:
    """A vector as the database reads it; seven digits are all that it keeps."""
    return "[" + ",".join(f"{number:.7g}" for number in vector) + "]"
