"""How much a search finds of what questions about real conversations need (M7), beside another full-text search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from agentmemory.search import minilm
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


def beginning(conversation: dict[str, Any], *, sessions: int) -> dict[str, Any]:
    """The first sessions, and the questions that they answer: making vectors takes its time."""
    said = conversation["sessions"][:sessions]
    turns = {turn["id"] for session in said for turn in session["turns"]}
    asked = [question for question in conversation["questions"] if turns.issuperset(question["evidence"])]
    return {**conversation, "sessions": said, "questions": asked}


@pytest.mark.vectors
@pytest.mark.skipif(not minilm.is_installed(), reason="the packages of the extra `vectors` are missing")
def test_m7_words_and_vectors_find_more_than_either(settings: Settings) -> None:
    conversations = [beginning(json.loads(CONVERSATIONS.read_text())[0], sessions=5)]
    words = {name: retrieval.measured(ask, conversations) for name, ask in retrieval.OURS.items()}
    settings.AGENTMEMORY_EMBEDDER = "auto"
    if obstacle := retrieval.embedded(conversations):
        pytest.skip(obstacle)

    vectors = retrieval.measured(retrieval.vectors_alone, conversations)
    for name, ask in retrieval.OURS.items():
        both = retrieval.measured(ask, conversations)
        assert both[1] > max(words[name][1], vectors[1]), name
        assert both[1] >= 0.71
