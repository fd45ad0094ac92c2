"""How much of the evidence for questions about long conversations a search finds, beside others' BM25.

    python -m bench.retrieval PATH

PATH is a file of conversations in the form of LoCoMo:
`[{id, sessions: [{session, turns: [{id, speaker, text}]}], questions: [{question, evidence: [turn id]}]}]`.
Each turn becomes a shared memory of a space of its conversation, with the two turns before it as its context, and a
message of a transcript. Printed are the mean share of a question's evidence among the first 5, 10 and 20 hits, and the
mean reciprocal rank of the first piece of evidence. A database of its own is made for the run, and removed.
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
from typing import TYPE_CHECKING, Any

from bench import throwaway

if TYPE_CHECKING:
    from agentmemory.callers import Caller
    from agentmemory.services.transcripts import NewMessage

DEPTHS = (5, 10, 20)
PREDECESSORS = 2
CHOSEN_ON = 3
"""So many of the conversations, the first, were looked at when it was chosen how the legs are put together."""

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


def stored(conversation: dict[str, Any]) -> Caller:
    """The one who asks about a conversation; its turns are stored as memories and as a transcript, once."""
    from agentmemory.callers import Caller
    from agentmemory.models import Agent, Memory, Space
    from agentmemory.services import sessions, transcripts

    space, new = Space.objects.get_or_create(slug=conversation["id"].lower())
    agent, _ = Agent.objects.get_or_create(space=space, handle="asker")
    if new:
        Memory.objects.bulk_create(
            Memory(space=space, origin="curated", created_by="bench", key=t.key, content=t.content, context=t.context)
            for t in turns(conversation)
        )
        for number, said in enumerate(conversation["sessions"]):
            session, _ = sessions.adopt(agent=agent, name=f"session-{number}")
            transcripts.append(session=session, messages=list(_messages(said["turns"])))
    return Caller(space=space, agent=agent)


def _messages(said: list[dict[str, Any]]) -> Iterator[NewMessage]:
    from agentmemory.services.transcripts import NewMessage

    for turn in said:
        role = "user" if turn["speaker"] == said[0]["speaker"] else "assistant"
        yield NewMessage(uid=turn["id"], type=role, content=f"{turn['speaker']}: {turn['text']}")


def product(conversation: dict[str, Any]) -> Search:
    """Search in memories as an agent asks for it, with vectors where they are switched on."""
    from agentmemory.search import ranking

    caller = stored(conversation)

    def search(question: str, limit: int) -> list[str]:
        results = ranking.search(caller=caller, q=question, limit=limit, count_access=False)
        return [found.memory.key for found in results.items]

    return search


def transcript(conversation: dict[str, Any]) -> Search:
    """Search in transcripts as an agent asks for it, with vectors where they are switched on."""
    from agentmemory.models import Agent
    from agentmemory.search import talk

    caller = stored(conversation)
    agent = Agent.objects.get(space=caller.space)

    def search(question: str, limit: int) -> list[str]:
        results = talk.search(caller=caller, agent=agent, q=question, limit=limit, neighbours=0)
        return [found.message.uid for found in results.items]

    return search


def vectors_alone(conversation: dict[str, Any]) -> Search:
    """The vector leg by itself, over memories."""
    from agentmemory.search import embeddings, vector_tables, vectors
    from agentmemory.services import memories

    caller, embedder = stored(conversation), embeddings.current()
    if embedder is None:
        return lambda question, limit: []
    keys = dict(memories.listing(caller=caller).values_list("pk", "key"))

    def search(question: str, limit: int) -> list[str]:
        query = embeddings.of_query(embedder, question)
        if query is None:
            return []
        near = vectors.nearest(
            memories.listing(caller=caller),
            vector_tables.MEMORIES,
            query,
            embedder=embedder,
            limit=limit,
            newest="updated_at",
        )
        return [keys[each.pk] for each in near]

    return search


def rank_bm25(conversation: dict[str, Any]) -> Search:
    """The package `rank-bm25` over the content, as its documentation has it: words in small letters, no stemming."""
    from rank_bm25 import BM25Okapi

    rows = list(turns(conversation))
    index = BM25Okapi([re.findall(r"\w+", row.content.lower()) for row in rows])

    def search(question: str, limit: int) -> list[str]:
        scores = index.get_scores(re.findall(r"\w+", question.lower()))
        best = sorted(range(len(rows)), key=lambda n: -scores[n])[:limit]
        return [rows[n].key for n in best if scores[n] > 0]

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
    "rank-bm25, content": rank_bm25,
}
OURS: dict[str, Callable[[dict[str, Any]], Search]] = {"memories": product, "transcripts": transcript}


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
    from django.conf import settings

    _head("all conversations")
    for name, retriever in RETRIEVERS.items():
        _row(name, retriever, conversations)
    for name, retriever in OURS.items():
        _row(f"{name}, words alone", retriever, conversations)
    settings.AGENTMEMORY_EMBEDDER = "auto"
    if obstacle := embedded(conversations):
        print(f"Without vectors: {obstacle}")
        return
    _row("memories, vectors alone", vectors_alone, conversations)
    for part, some in _parts(conversations).items():
        if some is not conversations:
            _head(part)
        for name, retriever in OURS.items():
            if some is not conversations:
                settings.AGENTMEMORY_EMBEDDER = "none"
                _row(f"{name}, words alone", retriever, some)
                settings.AGENTMEMORY_EMBEDDER = "auto"
            _row(f"{name}, words and vectors", retriever, some)


def embedded(conversations: list[dict[str, Any]]) -> str:
    """Have every vector made. Returns why there are none, or nothing."""
    from agentmemory.services import embedding

    if obstacle := embedding.prepare():
        return obstacle
    for conversation in conversations:
        stored(conversation)
    begun, rows = time.perf_counter(), embedding.waiting()
    while embedding.waiting():
        embedding.run()
    print(f"{rows / (time.perf_counter() - begun):.0f} rows a second embedded")
    return ""


def _parts(conversations: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """All, those that choices were made on, and the others, which tell whether the choices hold."""
    return {"all": conversations, "chosen on": conversations[:CHOSEN_ON], "held out": conversations[CHOSEN_ON:]}


def _head(title: str) -> None:
    print(f"{title:52}" + "".join(f"{f'R@{depth}':>8}" for depth in DEPTHS) + f"{'MRR':>8}{'ms':>8}")


def _row(name: str, retriever: Callable[[dict[str, Any]], Search], conversations: list[dict[str, Any]]) -> None:
    *shares, milliseconds = measured(retriever, conversations)
    print(f"{name:52}" + "".join(f"{share:8.3f}" for share in shares) + f"{milliseconds:8.1f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
