"""How much a search finds of what questions about real conversations need (M7), beside another full-text search."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import retrieval

CONVERSATIONS = Path(__file__).resolve().parents[3] / "shared" / "data" / "retrieval" / "locomo-dev.json"

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.slow,
    pytest.mark.skipif(not CONVERSATIONS.exists(), reason="the conversations to measure on are not here"),
]


def test_m7_search_finds_more_of_the_evidence_than_bm25_does() -> None:
    conversations = json.loads(CONVERSATIONS.read_text())[:2]

    ours = retrieval.measured(retrieval.product, conversations)
    theirs = [
        retrieval.measured(retrieval.bm25(tokenizer, weight), conversations)
        for tokenizer, weight in (("unicode61", 0), ("unicode61", 1), ("porter unicode61", 0.3))
    ]

    for place, figure in enumerate(("recall at 5", "recall at 10", "recall at 20", "reciprocal rank")):
        assert ours[place] >= max(their[place] for their in theirs), figure
    assert ours[1] >= 0.64
