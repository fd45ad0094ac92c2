"""Embedders for tests: what they take for alike is written down, so that nothing depends on a model."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from django.db import connection

from agentmemory.search import embeddings, minilm, vector_tables

MEANINGS = {
    "drink": ("tea", "coffee", "beverage", "drinks"),
    "animal": ("dog", "cat", "pet", "animal"),
    "boat": ("boat", "ship", "vessel", "harbour"),
}


@dataclass(eq=False)
class Concepts:
    """One dimension for each meaning or word. `before` is called with the texts of each call before they are read."""

    name: str = "concepts 1"
    dimensions: int = minilm.DIMENSIONS
    floor: float = 0.25
    before: Callable[[Sequence[str]], None] | None = None
    calls: list[list[str]] = field(default_factory=list)
    known: dict[str, int] = field(default_factory=dict)

    def embed(self, texts: Sequence[str]) -> list[list[float] | None]:
        self.calls.append(list(texts))
        if self.before is not None:
            self.before(texts)
        return [self._vector(re.findall(r"[a-z]+", text.lower())) for text in texts]

    def _vector(self, words: Sequence[str]) -> list[float] | None:
        if not words:
            return None
        vector = [0.0] * self.dimensions
        for word in words:
            vector[self._dimension(word)] += 1.0
        length = math.sqrt(sum(number * number for number in vector))
        return [number / length for number in vector]

    def _dimension(self, word: str) -> int:
        meaning = next((name for name, words in MEANINGS.items() if word in words), word)
        return self.known.setdefault(meaning, len(self.known) % self.dimensions)


@pytest.fixture
def concepts(db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Concepts]:
    """The vector leg, with an embedder of concepts. Its tables go with the test."""
    embedder = Concepts()
    monkeypatch.setattr(embeddings, "chosen", lambda: embedder)
    if obstacle := vector_tables.prepare():
        pytest.skip(f"no vectors in this database: {obstacle}")
    yield embedder
    if not connection.in_atomic_block:
        vector_tables.remove()
