"""How much of the evidence for questions about long conversations a search finds, beside SQLite's BM25.

    python -m bench.retrieval PATH

PATH is a file of conversations in the form of LoCoMo:
`[{id, sessions: [{session, turns: [{id, speaker, text}]}], questions: [{question, evidence: [turn id]}]}]`.
Each turn becomes a shared memory of a space of its conversation, with the two turns before it as its context. Printed
are the mean share of a question's evidence among the first 5, 10 and 20 hits, and the mean reciprocal rank of the
first piece of evidence. A database of its own is made for the run, and removed.
"""

# ruff: noqa: T201 - what it prints is what it is for
from __future__ import annotations

import argparse
import json
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import throwaway

DEPTHS = (5, 10, 20)
PREDECESSORS = 2

Search = Callable[[str, int], list[str]]


@dataclass(frozen=True)
class Turn:
    """One thing said, as it is stored: `context` is what was said before it."""

    key: str
    content: str
    context: str


def turns(conversation: dict[str, Any]) -> Iterator[Turn]:
    for session in conversation["sessions"]:
        said = [f"{turn['speaker']}: {turn['text']}" for turn in session["turns"]]
        for number, turn in enumerate(session["turns"]):
            before = said[max(0, number - PREDECESSORS) : number]
            yield Turn(key=turn["id"], content=said[number], context="\n".join(before))


def product(conversation: dict[str, Any]) -> Search:
    """Search as an agent asks for it."""
    from agentmemory.callers import Caller
    from agentmemory.models import Agent, Memory, Space
    from agentmemory.search import ranking

    space = Space.objects.create(slug=conversation["id"].lower())
    caller = Caller(space=space, agent=Agent.objects.create(space=space, handle="asker"))
    Memory.objects.bulk_create(
        Memory(space=space, origin="curated", created_by="bench", key=t.key, content=t.content, context=t.context)
        for t in turns(conversation)
    )

    def search(question: str, limit: int) -> list[str]:
        results = ranking.search(caller=caller, q=question, limit=limit, count_access=False)
        return [found.memory.key for found in results.items]

    return search


def bm25(tokenizer: str, context_weight: float) -> Callable[[dict[str, Any]], Search]:
    """SQLite's full-text index over the content, and over the context where that has a weight."""

    def over(conversation: dict[str, Any]) -> Search:
        database = sqlite3.connect(":memory:")
        database.execute(
            f"CREATE VIRTUAL TABLE t USING fts5 (key UNINDEXED, content, context, tokenize = '{tokenizer}')"
        )
        rows = [(turn.key, turn.content, turn.context) for turn in turns(conversation)]
        database.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
        columns = "content context" if context_weight else "content"

        def search(question: str, limit: int) -> list[str]:
            words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", question))
            found = database.execute(
                "SELECT key FROM t WHERE t MATCH ? ORDER BY bm25(t, 0, 1, ?) LIMIT ?",
                (f"{{{columns}}} : ({words})", context_weight, limit),
            )
            return [key for (key,) in found]

        return search

    return over


RETRIEVERS: dict[str, Callable[[dict[str, Any]], Search]] = {
    "SQLite FTS5 BM25, content": bm25("unicode61", 0),
    "SQLite FTS5 BM25, content, stemmed": bm25("porter unicode61", 0),
    "SQLite FTS5 BM25, content and context": bm25("unicode61", 1),
    "SQLite FTS5 BM25, content and 0.3 context, stemmed": bm25("porter unicode61", 0.3),
    "Agent Memory": product,
}


def measured(retriever: Callable[[dict[str, Any]], Search], conversations: list[dict[str, Any]]) -> list[float]:
    """Evidence recall at each depth, mean reciprocal rank, milliseconds a question."""
    totals, asked, spent = [0.0] * (len(DEPTHS) + 1), 0, 0.0
    for conversation in conversations:
        search = retriever(conversation)
        for question in conversation["questions"]:
            evidence = set(question["evidence"])
            begun = time.perf_counter()
            found = search(question["question"], max(DEPTHS))
            spent += time.perf_counter() - begun
            asked += 1
            shares = [len(evidence.intersection(found[:depth])) / len(evidence) for depth in DEPTHS]
            first = next((1 / place for place, key in enumerate(found, start=1) if key in evidence), 0.0)
            totals = [total + part for total, part in zip(totals, [*shares, first], strict=True)]
    return [*(total / asked for total in totals), 1000 * spent / asked]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    path: Path = parser.parse_args().path
    if not path.exists():
        print(f"Skipped: there is no {path}.")
        return 0
    with throwaway.database():
        report(json.loads(path.read_text()))
    return 0


def report(conversations: list[dict[str, Any]]) -> None:
    print(f"{'':52}" + "".join(f"{f'R@{depth}':>8}" for depth in DEPTHS) + f"{'MRR':>8}{'ms':>8}")
    for name, retriever in RETRIEVERS.items():
        *shares, milliseconds = measured(retriever, conversations)
        print(f"{name:52}" + "".join(f"{share:8.3f}" for share in shares) + f"{milliseconds:8.1f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
