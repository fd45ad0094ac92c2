"""The lexical leg (M7): what is indexed, what finds it, and in which order."""

from __future__ import annotations

import random
from typing import Any

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from agentmemory.models import Memory, Space
from agentmemory.search import lexical
from tests.factories import MemoryFactory, SpaceFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def space() -> Space:
    return SpaceFactory.create()


def keep(space: Space, content: str, **values: Any) -> Memory:
    return MemoryFactory.create(space=space, owner=None, content=content, **values)


def found(q: str, *, limit: int = 10) -> list[str]:
    hits = lexical.rank(Memory.objects.live(), q, limit=limit)
    rows = Memory.objects.in_bulk([hit.memory_id for hit in hits])
    return [rows[hit.memory_id].content for hit in hits]


@pytest.mark.parametrize(
    ("content", "q"),
    [
        ("We met at the café in Łódź", "cafe lodz"),
        ("We met at the cafe in Lodz", "CAFÉ"),
        ("Die Straße ist gesperrt", "strasse"),
        ("Smørrebrød for lunch", "smorrebrod"),
        ("The deployments were running late", "deploy run"),
        ("Caroline likes pottery", "Caroline's"),
        ("The Bennings moved house", "Bennings"),
        ("Call foo_bar.baz before the rest", "foo_bar.baz"),
        ("Call foo_bar.baz before the rest", "foo_bar"),
        ("Call foo_bar.baz before the rest", "baz"),
        ("See ABC-123 for the reason", "abc-123"),
        ("See ABC-123 for the reason", "123"),
        ("A kebab-case-name", "kebab"),
        ("parseHTTPResponse fails", "response"),
        ("parseHTTPResponse fails", "parsehttpresponse"),
        ("It is pinned to v5.2.19", "5.2.19"),
        ("It is pinned to 5.2.19", "v5.2.19"),
        ("In src/app/main.py", "main.py"),
        ("In src/app/main.py", "src/app/main.py"),
        ("In C:\\Users\\dana\\notes.txt", "notes.txt"),
        ("The compiler says E0308", "E0308"),
        ("Write to dana@example.org", "dana@example.org"),
        ("Write to dana@example.org", "example.org"),
        ("She writes Go and C++", "c++"),
        ("She writes Go and C++", "go"),
        ("The IT department approves", "IT"),
        ("東京タワーに行った", "東京"),
        ("東京タワーに行った", "タワー"),
        ("我喜欢喝绿茶", "绿茶"),
        ("家に猫がいる", "猫"),
        ("한국어로 대답해 주세요", "한국어"),
        ("Привет, мир", "ПРИВЕТ"),
        ("الْكِتَابُ الجديد", "الكتاب"),
        ("Ship it 🚀 on Friday", "friday 🚀"),
        ("\ufb01le \uff21\uff22\uff23 ①", "file ABC"),
    ],
)
def test_m7_a_word_is_found_however_it_is_written(space: Space, content: str, q: str) -> None:
    keep(space, content)
    keep(space, "Something else altogether")

    assert found(q) == [content]


@pytest.mark.parametrize("field", ["key", "content", "tags", "context"])
def test_m7_every_part_of_a_memory_is_searched(space: Space, field: str) -> None:
    values: dict[str, Any] = {"content": "nothing here", field: ["espresso"] if field == "tags" else "espresso"}
    MemoryFactory.create(space=space, owner=None, **values)

    assert len(found("espresso")) == 1


@pytest.mark.parametrize(
    "q", ["", "   ", "the", "to be or not to be", "WHO ARE YOU", "🚀", "!!!", "' | 'x", "\x00", "\ud800"]
)
def test_m7_a_query_without_words_of_its_own_finds_nothing(space: Space, q: str) -> None:
    keep(space, "To be or not to be: who are you, the one? 🚀")

    assert found(q) == []


def test_m7_in_a_query_in_capitals_throughout_a_stop_word_is_no_name(space: Space) -> None:
    keep(space, "The WHO advises the US")

    assert found("WHO ARE YOU") == []
    assert found("what does the WHO say") == ["The WHO advises the US"]


def test_m7_a_query_that_matches_nothing_returns_nothing(space: Space) -> None:
    keep(space, "Dana drinks green tea")

    assert found("kubernetes ingress certificate") == []


def test_m7_a_very_common_word_alone_does_not_carry_a_long_query(space: Space) -> None:
    for number in range(60):
        keep(space, f"Dana said thing {number}")

    assert found("Dana recommended which restaurant near harbour during winter holidays") == []
    assert len(found("Dana")) == 10


def test_m7_one_rare_word_carries_a_long_query(space: Space) -> None:
    for number in range(60):
        keep(space, f"Dana said thing {number}")
    keep(space, "The harbour opens at nine")

    assert found("Dana recommended which restaurant near harbour during winter holidays") == [
        "The harbour opens at nine"
    ]


def test_m7_a_single_memory_is_found_by_one_word_of_many(space: Space) -> None:
    keep(space, "Dana prefers the Helix editor")

    assert found("which editor should I configure for python projects") == ["Dana prefers the Helix editor"]


def test_m7_covering_more_of_the_query_counts_for_more_than_repeating_a_part(space: Space) -> None:
    keep(space, "tea tea tea tea tea tea tea tea")
    keep(space, "She drinks green tea")

    assert found("green tea")[0] == "She drinks green tea"


def test_m7_rare_words_count_for_more(space: Space) -> None:
    for number in range(20):
        keep(space, f"meeting {number}")
    keep(space, "the ledger")

    assert found("meeting ledger")[0] == "the ledger"


def test_m7_key_content_tags_and_context_weigh_in_this_order_of_care(space: Space) -> None:
    keep(space, "d", key="k1", context="espresso")
    keep(space, "c", key="k2", tags=["espresso"])
    keep(space, "espresso b", key="k3")
    keep(space, "a", key="espresso")

    assert found("espresso") == ["a", "espresso b", "c", "d"]


def test_m7_the_word_as_written_comes_before_its_relatives(space: Space) -> None:
    keep(space, "universal")
    keep(space, "university")

    assert found("university")[0] == "university"


def test_m7_an_identifier_in_whole_comes_before_its_parts(space: Space) -> None:
    keep(space, "foo and bar and baz")
    keep(space, "foo_bar.baz")

    assert found("foo_bar.baz") == ["foo_bar.baz", "foo and bar and baz"]


def test_m7_of_equals_the_newest_comes_first_and_the_order_is_always_the_same(space: Space) -> None:
    rows = [keep(space, f"tea {letter}", origin="distilled") for letter in "xyz"]
    Memory.objects.filter(pk=rows[1].pk).update(updated_at="2100-01-01T00:00:00Z")

    orders = {tuple(found("tea")) for _ in range(5)}

    assert len(orders) == 1
    assert orders.pop()[0] == "tea y"


def test_m7_scores_lie_between_nothing_and_one(space: Space) -> None:
    MemoryFactory.create(space=space, owner=None, key="tea", content="tea tea tea", tags=["tea"], context="tea")
    keep(space, "tea", key="k")

    scores = [hit.score for hit in lexical.rank(Memory.objects.all(), "tea", limit=10)]

    assert 1 >= scores[0] > scores[1] > 0


def test_m7_a_hit_names_the_words_it_holds(space: Space) -> None:
    keep(space, "She drinks green tea")

    (hit,) = lexical.rank(Memory.objects.all(), "the green mountains", limit=10)

    assert (hit.words, hit.rank) == (("green",), 1)


def test_m7_the_first_of_many_are_the_first_of_all(space: Space) -> None:
    """Rows that cannot come first are never scored: that changes nothing of what is found."""
    chance = random.Random(7)
    for _ in range(150):
        words = [f"w{'abcdefghij'[int(10 ** chance.random()) - 1]}x" for _ in range(chance.randint(1, 6))]
        keep(space, " ".join(words), context=chance.choice(["", "wax", "wcx wdx", "wjx wix"]))
    for q in ("wax", "wax wbx", "wax wjx", "wax wcx wfx wjx", "wdx wix nowhere"):
        everything = lexical.rank(Memory.objects.live(), q, limit=1_000)
        assert len(everything) > 10
        for limit in (1, 3, 10, 40):
            assert lexical.rank(Memory.objects.live(), q, limit=limit) == everything[:limit]


def test_m4_how_rare_a_word_is_does_not_depend_on_rows_out_of_view(space: Space) -> None:
    keep(space, "alpha one")
    keep(space, "beta two")
    view = Memory.objects.filter(space=space)
    before = [hit.score for hit in lexical.rank(view, "alpha gamma", limit=10)]
    for _ in range(5):
        MemoryFactory.create(content="alpha gamma")

    assert [hit.score for hit in lexical.rank(view, "alpha gamma", limit=10)] == before


def test_an_empty_view_finds_nothing() -> None:
    assert lexical.rank(Memory.objects.none(), "tea", limit=10) == []


def test_of_a_long_query_a_bounded_number_of_terms_is_looked_for() -> None:
    wanted = lexical.query(" ".join(f"word{number}" for number in range(5_000)))

    assert wanted is not None
    assert len(wanted.terms) == lexical.MAX_TERMS


def test_of_a_long_query_the_words_that_are_said_most_are_looked_for() -> None:
    wanted = lexical.query(
        " ".join(f"{chr(97 + n % 26) * 3}{chr(97 + n // 26)}q" for n in range(200)) + " ledger ledger"
    )

    assert wanted is not None
    assert wanted.terms[0].word == "ledger"


def test_the_index_follows_the_row_in_the_same_statement(space: Space) -> None:
    memory = keep(space, "green tea", origin="distilled")
    Memory.objects.filter(pk=memory.pk).update(content="black coffee")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE agentmemory_memory SET search = ''")

    assert (found("tea"), found("coffee")) == ([], ["black coffee"])


def test_a_stale_instance_does_not_bring_back_its_index(space: Space) -> None:
    stale = Memory.objects.get(pk=keep(space, "green tea", origin="distilled").pk)
    stale.content = "black coffee"
    stale.search = "'tea':1"
    stale.save()

    assert (found("tea"), found("coffee")) == ([], ["black coffee"])


def characters(seed: int, *ranges: tuple[int, int]) -> str:
    chosen = random.Random(seed)
    return "".join(chr(chosen.randint(*chosen.choice(ranges))) for _ in range(10_000))


@pytest.mark.parametrize(
    "content",
    [
        "a " * 5_000, "aA" * 5_000, "a." * 5_000, "a/" * 5_000, "." * 10_000, "x" * 10_000, "x1" * 5_000,
        "'\\" * 5_000, "a\\" * 5_000, "e" + "\u0301" * 9_999, "\ufdfa" * 10_000, "\ufffe\uffff\ue000" * 3_333,
        characters(1, (0x4E00, 0x9FFF)), characters(2, (0x20000, 0x2A6DF)), characters(3, (0xAC00, 0xD7A3)),
        characters(4, (0x1F300, 0x1FAFF)), characters(5, (1, 0xD7FF), (0xE000, 0x10FFFF)), characters(6, (1, 0x7F)),
    ],
    ids=range(18),
)  # fmt: skip
def test_a_row_can_always_be_written_whatever_its_text(space: Space, content: str) -> None:
    keep(space, content, key=content[:200], tags=[content[:50]] * 50, context=content[:4_000])

    lexical.rank(Memory.objects.all(), content, limit=10)


def test_far_more_text_than_a_memory_may_have_is_indexed_within_its_bounds() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT length(agentmemory_vector(%s))", [characters(7, (0x20000, 0x2A6DF)) * 20])
        assert cursor.fetchone()[0] < 40_000


class TestAnyText(TestCase):
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=80))
    def test_a_memory_is_found_by_its_own_key_or_that_has_no_words(self, text: str) -> None:
        memory = MemoryFactory.create(content="-", key=text)
        hits = lexical.rank(Memory.objects.filter(pk=memory.pk), text, limit=1)

        assert bool(hits) == (lexical.query(text) is not None)
