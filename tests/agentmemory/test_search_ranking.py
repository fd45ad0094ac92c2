"""Search as agents ask for it: whose rows, how often they were used, what a slip of the finger does (M7)."""

from __future__ import annotations

import pytest

from agentmemory.callers import Caller
from agentmemory.models import Agent, MemoryAccess
from agentmemory.search import ranking, spelling
from tests.factories import AgentFactory, MemoryFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent() -> Agent:
    return AgentFactory.create()


@pytest.fixture
def caller(agent: Agent) -> Caller:
    return Caller(space=agent.space, agent=agent)


def keys(results: ranking.Results) -> list[str]:
    return [found.memory.key for found in results.items]


def test_m3_search_sees_own_and_shared_or_what_the_scope_says(agent: Agent, caller: Caller) -> None:
    MemoryFactory.create(owner=agent, key="own", content="green tea")
    MemoryFactory.create(owner=None, space=agent.space, key="shared", content="green tea")

    assert sorted(keys(ranking.search(caller=caller, q="tea"))) == ["own", "shared"]
    assert keys(ranking.search(caller=caller, q="tea", scope="mine")) == ["own"]
    assert keys(ranking.search(caller=caller, q="tea", scope="space")) == ["shared"]


@pytest.mark.parametrize("q", ["tea", "teapots"])
def test_m4_search_finds_nothing_of_another_agent_nor_of_another_space(agent: Agent, caller: Caller, q: str) -> None:
    MemoryFactory.create(owner=AgentFactory.create(space=agent.space), content="green tea teapotz")
    MemoryFactory.create(content="green tea teapotz")

    assert keys(ranking.search(caller=caller, q=q)) == []


def test_filters_narrow_the_view_before_the_limit_does(agent: Agent, caller: Caller) -> None:
    for number in range(20):
        MemoryFactory.create(owner=agent, key=f"tea-{number}", content="tea tea tea")
    MemoryFactory.create(owner=agent, key="wanted", content="a word on tea", tags=["drink"], origin="distilled")

    assert keys(ranking.search(caller=caller, q="tea", tag="drink", limit=1)) == ["wanted"]
    assert keys(ranking.search(caller=caller, q="tea", origin="distilled", limit=1)) == ["wanted"]


@pytest.mark.parametrize("gone", ["deleted_at", "withdrawn_at", "expires_at"])
def test_m7_what_is_deleted_withdrawn_or_expired_is_not_found(agent: Agent, caller: Caller, gone: str) -> None:
    MemoryFactory.create(owner=agent, content="green tea", **{gone: "2020-01-01T00:00:00Z"})

    assert keys(ranking.search(caller=caller, q="tea")) == []


def test_m6_a_search_counts_what_it_returns_and_nothing_else(agent: Agent, caller: Caller) -> None:
    found = MemoryFactory.create(owner=agent, content="green tea")
    MemoryFactory.create(owner=agent, content="black coffee")

    (first,) = ranking.search(caller=caller, q="tea").items
    (second,) = ranking.search(caller=caller, q="tea").items

    assert [first.memory.access_count, second.memory.access_count] == [0, 1]  # type: ignore[attr-defined]
    assert list(MemoryAccess.objects.values_list("memory", flat=True)) == [found.pk, found.pk]


def test_m6_one_who_only_looks_counts_nothing(agent: Agent, caller: Caller) -> None:
    MemoryFactory.create(owner=agent, content="green tea")

    assert ranking.search(caller=caller, q="tea", count_access=False).items
    assert not MemoryAccess.objects.exists()


def test_m7_each_memory_says_what_found_it_and_how_where_asked(agent: Agent, caller: Caller) -> None:
    MemoryFactory.create(owner=agent, content="green tea")

    plain = ranking.search(caller=caller, q="green mountain")
    told = ranking.search(caller=caller, q="green mountain", explain=True)

    assert (plain.items[0].matched, plain.items[0].explain, plain.pending) == (("text",), None, 0)
    assert told.items[0].explain == {
        "text": {"score": plain.items[0].score, "rank": 1, "words": ["green"], "asked": "green mountain"}
    }


@pytest.mark.parametrize(
    ("q", "content"),
    [
        ("kuberntes", "The kubernetes cluster"),
        ("posgres", "It runs on postgres"),
        ("Carolien", "Caroline likes pottery"),
        ("thme", "A dark theme"),
        ("xditor", "Her editor is Helix"),
        ("recieved recommendtions", "She received recommendations"),
    ],
)
def test_m7_typing_errors_are_forgiven_when_nothing_else_matches(
    agent: Agent, caller: Caller, q: str, content: str
) -> None:
    MemoryFactory.create(owner=agent, key="wanted", content=content)
    MemoryFactory.create(owner=agent, key="other", content="Something else altogether")

    assert keys(ranking.search(caller=caller, q=q)) == ["wanted"]


def test_m7_typing_errors_are_not_looked_for_when_something_matches(agent: Agent, caller: Caller) -> None:
    MemoryFactory.create(owner=agent, key="as-written", content="the tehran notes")
    MemoryFactory.create(owner=agent, key="near", content="the tehram notes")

    assert keys(ranking.search(caller=caller, q="tehran")) == ["as-written"]


@pytest.mark.parametrize("q", ["quantum", "E0309", "20231", "teb", "xyzzy plugh"])
def test_m7_other_words_numbers_and_codes_are_no_typing_errors(agent: Agent, caller: Caller, q: str) -> None:
    MemoryFactory.create(owner=agent, content="quantity E0308 20230 tea")

    assert keys(ranking.search(caller=caller, q=q)) == []


@pytest.mark.parametrize(
    ("word", "other", "expected"),
    [
        ("tea", "tea", 0),
        ("tea", "teas", 1),
        ("tea", "eta", 1),
        ("tea", "sea", 1),
        ("", "ab", 2),
        ("abcdef", "uvwxyz", 3),
    ],
)
def test_slips_are_counted_up_to_a_bound(word: str, other: str, expected: int) -> None:
    assert spelling.slips(word, other, at_most=2) == expected


@pytest.mark.parametrize("q", ["", "  ", "the", "\x00", "%s %(limit)s 100%"])
def test_any_question_is_answered(agent: Agent, caller: Caller, q: str) -> None:
    MemoryFactory.create(owner=agent, content="green tea")

    assert keys(ranking.search(caller=caller, q=q)) == []
