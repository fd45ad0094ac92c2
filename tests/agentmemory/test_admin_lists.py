"""Lists in pages that begin at a place: nothing is counted or skipped, and nothing moves under the reader."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import QuerySet
from django.http import HttpRequest
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from agentmemory.console import keyset
from agentmemory.models import Agent, Memory, Token
from tests.factories import AgentFactory, MemoryFactory, SessionFactory

pytestmark = pytest.mark.django_db

LIST = "admin:agentmemory_memory_changelist"
NOW = timezone.now()


@pytest.fixture
def operator(client: Client, monkeypatch: pytest.MonkeyPatch) -> Client:
    client.force_login(User.objects.create_superuser("ada"))
    monkeypatch.setattr(admin.site._registry[Memory], "list_per_page", 3)
    return client


@pytest.fixture
def agent() -> Agent:
    return AgentFactory.create()


def write(agent: Agent, *numbers: int) -> None:
    """Memories `k00`, `k01`, …: the higher its number, the newer."""
    for number in numbers:
        at = NOW + timedelta(seconds=number)
        MemoryFactory.create(owner=agent, origin="distilled", key=f"k{number:02}", updated_at=at)


def shown(client: Client, url: str) -> tuple[list[str], dict[str, str], str]:
    """The keys on a page, its links to other pages, and how many it says there are."""
    answer = client.get(url)
    assert answer.status_code == 200, answer
    text = answer.content.decode()
    links = {name: unescape(at) for name, at in re.findall(r'id="page-(\w+)"[^>]*href="([^"]+)"', text)}
    (many,) = re.findall(r'id="how-many">(.*?)</span>', text, re.DOTALL)
    keys = re.findall(r'am-key">(k\d\d)<', text)
    return keys, {name: reverse(LIST) + at for name, at in links.items()}, " ".join(many.split())


def test_one_page_says_exactly_how_many(operator: Client, agent: Agent) -> None:
    write(agent, 1, 2, 3)

    assert shown(operator, reverse(LIST)) == (["k03", "k02", "k01"], {}, "3 memories")


def test_pages_lead_on_and_back(operator: Client, agent: Agent) -> None:
    write(agent, *range(8))

    first, links, many = shown(operator, reverse(LIST))
    assert (first, set(links), many) == (["k07", "k06", "k05"], {"next"}, "more than 3 memories")
    second, links, _ = shown(operator, links["next"])
    assert (second, set(links)) == (["k04", "k03", "k02"], {"first", "previous", "next"})
    last, to, _ = shown(operator, links["next"])
    assert (last, set(to)) == (["k01", "k00"], {"first", "previous"})
    assert shown(operator, to["previous"])[0] == second
    assert shown(operator, links["previous"]) == (first, {"next": shown(operator, reverse(LIST))[1]["next"]}, many)


def test_a_page_stays_where_it_is_while_rows_come_and_go(operator: Client, agent: Agent) -> None:
    write(agent, *range(8))
    _, links, _ = shown(operator, reverse(LIST))

    write(agent, 20, 21, 22)
    Memory.objects.filter(key="k05").update(deleted_at=NOW)

    second, links, _ = shown(operator, links["next"])
    assert second == ["k04", "k03", "k02"], "not one again, not one left out, though the row before it is gone"
    assert shown(operator, links["previous"])[0] == ["k20", "k07", "k06"]


def test_equals_are_told_apart_by_their_key(operator: Client, agent: Agent) -> None:
    write(agent, *range(7))
    Memory.objects.update(updated_at=NOW)

    first, links, _ = shown(operator, reverse(LIST))
    second, links, _ = shown(operator, links["next"])
    last, _, _ = shown(operator, links["next"])
    assert sorted([*first, *second, *last]) == [f"k{number:02}" for number in range(7)]


def test_filters_and_search_hold_on_every_page_and_begin_at_the_first(operator: Client, agent: Agent) -> None:
    write(agent, *range(5))
    other = AgentFactory.create()
    write(other, *range(10, 15))

    for narrowed in (f"agent={agent.handle}", f"space={agent.space.slug}"):
        first, links, _ = shown(operator, f"{reverse(LIST)}?{narrowed}")
        assert first == ["k04", "k03", "k02"]
        assert shown(operator, links["next"])[0] == ["k01", "k00"]
    found, links, _ = shown(operator, f"{reverse(LIST)}?q=statement")
    assert (len(found), "q=statement" in links["next"]) == (3, True)


def test_all_words_must_be_there(operator: Client, agent: Agent) -> None:
    MemoryFactory.create(owner=agent, key="k01", content="Apples and pears.")
    MemoryFactory.create(owner=agent, key="k02", content="Apples alone.")

    assert shown(operator, f"{reverse(LIST)}?q=pear+apple")[0] == ["k01"]


def test_nothing_is_counted_skipped_or_sorted(operator: Client, agent: Agent) -> None:
    write(agent, *range(8))
    _, links, _ = shown(operator, reverse(LIST))

    with CaptureQueriesContext(connection) as asked:
        shown(operator, links["next"])

    of_memories = [one["sql"] for one in asked if 'FROM "agentmemory_memory"' in one["sql"]]
    assert of_memories
    assert not [sql for sql in of_memories if " OFFSET " in sql or sql.startswith("SELECT COUNT")]
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        page = next(sql for sql in of_memories if sql.endswith("LIMIT 4"))
        cursor.execute(f"EXPLAIN {page}")
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "memory_newest_of_all" in plan
    assert "Sort Key" not in plan
    assert re.search(r"Index Cond: \(ROW\(", plan), "it begins at its place"


@pytest.mark.parametrize(
    "place", ["a", "b!!", "aW10", "aWzEsMl0", "aWyJ4IiwieSJd", "a" + "é", "aWyIyMDI2LTAxLTAxIiwiXHUwMDAwIl0"]
)
def test_a_place_that_is_none_leads_to_the_list(operator: Client, place: str) -> None:
    answer = operator.get(reverse(LIST), {"p": place})

    assert (answer.status_code, answer.headers["Location"]) == (302, f"{reverse(LIST)}?e=1")


def test_a_page_by_number_is_the_first_one(operator: Client, agent: Agent) -> None:
    write(agent, *range(5))

    assert shown(operator, f"{reverse(LIST)}?p=2")[0] == ["k04", "k03", "k02"]


def test_only_columns_that_an_index_has_in_order_can_be_sorted_by(operator: Client, agent: Agent) -> None:
    write(agent, *range(3))

    assert shown(operator, f"{reverse(LIST)}?o=7")[0] == ["k00", "k01", "k02"], "updated, the oldest first"
    assert shown(operator, f"{reverse(LIST)}?o=-7")[0] == ["k02", "k01", "k00"]
    assert shown(operator, f"{reverse(LIST)}?o=3")[0] == ["k02", "k01", "k00"], "by the owner's handle it cannot be"
    assert admin.site._registry[Memory].get_sortable_by(HttpRequest()) == ["changed"]


def walked(rows: QuerySet[Token], order: list[str]) -> list[int]:
    """All rows page by page, and back again."""
    page = keyset.page(rows, order, place="", size=2)
    there = [*page.rows]
    while page.next:
        page = keyset.page(rows, order, place=page.next, size=2)
        there += page.rows
    back = page.rows[::-1]
    while page.previous:
        page = keyset.page(rows, order, place=page.previous, size=2)
        back += page.rows[::-1]
    # The first page is whole, so that a row of it may be shown once more.
    assert list(dict.fromkeys(back)) == there[::-1]
    return [row.pk for row in there]


@pytest.mark.parametrize("sign", ["", "-"])
def test_what_is_null_has_its_place_too(agent: Agent, sign: str) -> None:
    for number in range(7):
        used = NOW + timedelta(days=number // 2) if number % 2 else None
        Token.objects.create(space=agent.space, prefix=f"p{number}", digest="d", last_used_at=used)
    order = [f"{sign}last_used_at", f"{sign}id"]

    assert walked(Token.objects.all(), order) == list(Token.objects.order_by(*order).values_list("pk", flat=True))


def test_an_estimate_looks_at_no_row(agent: Agent) -> None:
    for number in range(5):
        SessionFactory.create(agent=agent, name=f"s{number}")

    with CaptureQueriesContext(connection) as asked:
        assert keyset.estimate(agent.sessions.all()) >= 1
    assert [one["sql"].split("SELECT")[0].strip() for one in asked] == ["EXPLAIN (FORMAT json)"]
