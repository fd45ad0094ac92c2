"""Merges and links: one memory stands for another, found and reversed (M9)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agentmemory.authorship import Author, acting
from agentmemory.callers import Caller
from agentmemory.errors import Invalid, NotFound
from agentmemory.models import Agent, Consolidation, Memory, MemoryEvent, MemorySource
from agentmemory.search import ranking
from agentmemory.services import context, curation, memories, merging, purging
from tests.factories import AgentFactory, MemoryFactory, MessageFactory, SessionFactory
from tests.support.clients import of_agent

pytestmark = pytest.mark.django_db
OPERATOR = Author(kind="operator", name="olga")
Distil = Callable[..., Memory]


@pytest.fixture
def agent() -> Agent:
    return AgentFactory.create(handle="ada", space__slug="acme")


@pytest.fixture
def distil(agent: Agent) -> Distil:
    """A distilled memory of the agent, resting on these messages of its session `s1`."""
    session = SessionFactory.create(agent=agent, name="s1")

    def made(key: str, content: str = "The service listens on port 8080.", *seqs: int, **values: Any) -> Memory:
        values = {"owner": agent, "space": agent.space, "origin": "distilled", "created_by": "pass:1", **values}
        memory = MemoryFactory.create(key=key, content=content, **values)
        for seq in seqs:
            message = session.messages.filter(seq=seq).first() or MessageFactory.create(session=session, seq=seq)
            MemorySource.objects.create(
                space=agent.space,
                memory=memory,
                session=session,
                message=message,
                session_name="s1",
                uid=message.uid,
                seq=seq,
                quote=f"quote {seq}",
            )
        return memory

    return made


def merge(memory: Memory, into: Memory, author: Author = OPERATOR) -> Consolidation:
    return merging.merge(memory_id=memory.pk, into_id=into.pk, author=author, why="the same", reason="tidying")


def rests_on(memory: Memory) -> list[int]:
    return sorted(MemorySource.objects.filter(memory=memory).values_list("seq", flat=True))


def caller_of(agent: Agent) -> Caller:
    return Caller(space=agent.space, agent=agent)


def found(agent: Agent, q: str) -> set[str]:
    return {hit.memory.key for hit in ranking.search(caller=caller_of(agent), q=q).items}


def test_m9_the_survivor_gains_sources_and_tags_and_the_other_is_found_nowhere(agent: Agent, distil: Distil) -> None:
    survivor, gone = distil("port", tags=["net"]), distil("listening", "It listens on port 8080.", 1, 2, tags=["infra"])
    distil("unrelated", "Something else.", 3)
    merge(gone, survivor)
    survivor.refresh_from_db()
    assert (survivor.key, survivor.tags, rests_on(survivor)) == ("port", ["net", "infra"], [1, 2])
    assert {memory.key for memory in memories.listing(caller=caller_of(agent))} == {"port", "unrelated"}
    assert found(agent, "listens port 8080") == {"port"}
    assert "listening" not in context.build(caller=caller_of(agent), q="listens on port 8080").text


def test_m9_a_vanished_key_answers_with_the_survivor_which_names_it(agent: Agent, distil: Distil) -> None:
    survivor, gone = distil("port"), distil("listening", "It listens on port 8080.")
    merge(gone, survivor)
    api = of_agent(agent)
    answer = api.get("/memories/listening")
    assert answer.status == 200
    assert answer.body["key"] == "port"
    assert answer.body["merged_from"] == [{"id": str(gone.pk), "key": "listening"}]
    (listed,) = api.get("/memories").body["items"]
    assert listed["merged_from"] == answer.body["merged_from"]
    (hit,) = api.get("/search?q=port").body["items"]
    assert hit["merged_from"] == answer.body["merged_from"]
    assert api.delete("/memories/listening").body == {"deleted": True, "id": str(survivor.pk)}
    assert api.get("/memories/listening").status == 404


def test_m9_chains_lead_to_their_end(agent: Agent, distil: Distil) -> None:
    first, second, third = distil("a", "x", 1), distil("b", "x", 2), distil("c", "x", 3)
    merge(first, second)
    merge(second, third)
    answer = of_agent(agent).get("/memories/a").body
    assert answer["key"] == "c"
    assert [each["key"] for each in answer["merged_from"]] == ["a", "b"]
    assert rests_on(third) == [1, 2, 3]


def test_m9_merged_from_costs_no_query_a_row(agent: Agent, distil: Distil) -> None:
    def queries() -> int:
        with CaptureQueriesContext(
            connection,
        ) as caught:
            list(memories.listing(caller=caller_of(agent)))
        return len(caught)

    merge(distil("a"), distil("b"))
    before = queries()
    for n in range(5):
        merge(distil(f"a{n}"), distil(f"b{n}"))
    assert queries() == before == 1


def test_m9_a_merge_is_undone_by_one_act(distil: Distil) -> None:
    survivor, gone = distil("port", "x", 1, tags=["net"]), distil("listening", "y", 1, 2, tags=["net", "infra"])
    merge(gone, survivor)
    merging.unmerge(memory_id=gone.pk, author=OPERATOR, reason="they differ")
    survivor.refresh_from_db()
    gone.refresh_from_db()
    assert (survivor.tags, rests_on(survivor)) == (["net"], [1])
    assert (gone.merged_into_id, gone.content, gone.tags, rests_on(gone)) == (None, "y", ["net", "infra"], [1, 2])
    row = Consolidation.objects.get()
    assert (row.undone_by, row.undone_reason) == ("operator:olga", "they differ")
    with pytest.raises(Invalid):
        merging.unmerge(memory_id=gone.pk, author=OPERATOR, reason="again")


def test_m9_a_merge_is_undone_after_the_survivor_changed_or_was_deleted(agent: Agent, distil: Distil) -> None:
    survivor, gone = distil("port", "x", 1), distil("listening", "y", 2)
    merge(gone, survivor)
    curation.edit(memory_id=survivor.pk, author=OPERATOR, reason="clearer", content="changed", tags=["new"])
    curation.remove(memory_id=survivor.pk, author=OPERATOR, reason="wrong")
    assert of_agent(agent).get("/memories/listening").status == 404
    merging.unmerge(memory_id=gone.pk, author=OPERATOR, reason="needed")
    survivor.refresh_from_db()
    assert (survivor.content, survivor.tags) == ("changed", ["new"])
    assert of_agent(agent).get("/memories/listening").body["content"] == "y"


def test_m9_undoing_the_middle_of_a_chain_takes_its_own_and_what_came_with_it(distil: Distil) -> None:
    first, second, third = distil("a", "x", 1), distil("b", "x", 2), distil("c", "x", 3)
    merge(first, second)
    merge(second, third)
    merging.unmerge(memory_id=first.pk, author=OPERATOR, reason="differs")
    assert (rests_on(second), rests_on(third)) == ([2], [2, 3])
    merging.unmerge(memory_id=second.pk, author=OPERATOR, reason="differs")
    assert rests_on(third) == [3]


def test_m9_a_tag_that_two_merges_brought_stays_while_one_stands(distil: Distil) -> None:
    survivor, one, two = distil("s"), distil("a", tags=["t"]), distil("b", tags=["t"])
    merge(one, survivor)
    merge(two, survivor)
    merging.unmerge(memory_id=one.pk, author=OPERATOR, reason="r")
    survivor.refresh_from_db()
    assert survivor.tags == ["t"]


def test_m9_nothing_is_merged_across_owners_or_origins(agent: Agent, distil: Distil) -> None:
    mine = distil("mine")
    other = AgentFactory.create(space=agent.space)
    for foreign in (
        distil("theirs", owner=other),
        distil("shared", owner=None),
        distil("curated", origin="curated"),
        MemoryFactory.create(origin="distilled"),
    ):
        for pair in ((mine, foreign), (foreign, mine)):
            with pytest.raises(Invalid):
                merge(*pair)
            with pytest.raises(IntegrityError), transaction.atomic(), acting(OPERATOR):
                Memory.objects.filter(pk=pair[0].pk).update(merged_into=pair[1])
    with pytest.raises(IntegrityError, match="merged into another one"), transaction.atomic():
        Memory.objects.filter(pk=mine.pk).update(merged_into=mine)


def test_m9_the_database_refuses_a_circle(distil: Distil) -> None:
    first, second = distil("a"), distil("b")
    merge(first, second)
    with pytest.raises(Invalid):
        merge(second, first)
    with pytest.raises(IntegrityError), transaction.atomic():
        Memory.objects.filter(pk=second.pk).update(merged_into=first)


def test_m4_a_merge_shows_nobody_the_key_of_another(agent: Agent, distil: Distil) -> None:
    survivor, gone = distil("port"), distil("a-private-key")
    merge(gone, survivor)
    curation.share(memory_id=survivor.pk, author=OPERATOR, reason="useful to all")
    other = of_agent(AgentFactory.create(space=agent.space))
    assert other.get("/memories/a-private-key").status == 404
    assert "a-private-key" not in other.get("/memories/port").text + other.get("/memories").text
    assert of_agent(agent).get("/memories/a-private-key").body["key"] == "port"
    heir = AgentFactory.create(space=agent.space)
    curation.give_back(memory_id=survivor.pk, agent=heir, author=OPERATOR, reason="it is theirs")
    assert of_agent(agent).get("/memories/a-private-key").status == 404


def test_m5_merges_are_in_the_history_of_both_with_who_and_why(distil: Distil) -> None:
    survivor, gone = distil("port"), distil("listening", tags=["infra"])
    merge(gone, survivor)
    for memory in (survivor, gone):
        event = MemoryEvent.objects.filter(pgh_obj_id=memory.pk).latest("pgh_id")
        assert event.pgh_context == {"author": "operator:olga", "reason": "tidying"}
        assert event.version == 2


def test_a_merged_memory_is_changed_by_no_act_but_undoing(distil: Distil) -> None:
    survivor, gone = distil("port"), distil("listening")
    merge(gone, survivor)
    with pytest.raises(Invalid, match="undo that first"):
        curation.remove(memory_id=gone.pk, author=OPERATOR, reason="r")


def test_m9_a_survivor_has_no_more_tags_than_a_memory_may_and_gives_back_those_that_it_got(distil: Distil) -> None:
    own = [f"own-{n}" for n in range(49)]
    survivor, gone = distil("port", tags=own), distil("listening", tags=["a", "b"])
    assert merge(gone, survivor).tags_added == ["a"]
    merging.unmerge(memory_id=gone.pk, author=OPERATOR, reason="r")
    survivor.refresh_from_db()
    assert survivor.tags == own


def test_m5_a_purge_of_what_was_merged_takes_the_sources_that_it_brought(distil: Distil) -> None:
    survivor, gone = distil("port", "It is 8080.", 1), distil("listening", "It listens on 8080.", 2)
    merge(gone, survivor)
    purging.purge(scope=purging.Scope(memory_ids=[gone.pk]), author=OPERATOR, reason="r")
    assert rests_on(survivor) == [1]


def test_d23_a_source_that_was_taken_back_supports_no_survivor(distil: Distil) -> None:
    survivor, gone = distil("port", "It is 8080.", 1), distil("listening", "It listens on 8080.", 2, 3)
    MemorySource.objects.filter(memory=gone, seq=2).update(gone_at=gone.created_at)
    merge(gone, survivor)
    assert rests_on(survivor) == [1, 3]


def test_m9_what_was_withdrawn_is_neither_merged_nor_merged_into(distil: Distil) -> None:
    memory, withdrawn = distil("port"), distil("listening")
    curation.withdraw(memory_id=withdrawn.pk, author=OPERATOR, reason="r")
    for one, into in ((memory, withdrawn), (withdrawn, memory)):
        with pytest.raises(Invalid):
            merge(one, into)


def test_m9_a_linked_memory_that_is_merged_stands_for_itself_when_that_is_undone(distil: Distil) -> None:
    linked, survivor, curated = distil("listening"), distil("port"), distil("port", origin="curated")
    merging.link(memory_id=linked.pk, curated_id=curated.pk, author=OPERATOR, why="the same")
    merge(linked, survivor)
    assert merging.unmerge(memory_id=linked.pk, author=OPERATOR, reason="r").repeats_id is None


def test_m9_nothing_is_linked_to_what_ends_one_day(distil: Distil) -> None:
    memory = distil("listening")
    curated = distil("port", origin="curated", expires_at=timezone.now() + timedelta(days=1))
    with pytest.raises(Invalid):
        merging.link(memory_id=memory.pk, curated_id=curated.pk, author=OPERATOR, why="w")


def test_m9_two_that_were_kept_apart_are_so_whichever_is_looked_at(distil: Distil) -> None:
    memory, curated, other = distil("listening"), distil("port", origin="curated"), distil("other")
    merging.keep_apart(memory_id=memory.pk, other_id=curated.pk, author=OPERATOR, reason="both")
    assert merging.kept_apart(memory.pk, [curated.pk, other.pk]) == {curated.pk}
    assert merging.kept_apart(curated.pk, [memory.pk, other.pk]) == {memory.pk}


def test_m9_a_link_leaves_a_repetition_out_of_search_and_context_and_in_lists(agent: Agent, distil: Distil) -> None:
    repetition = distil("listening", "The service listens on 8080.")
    curated = distil("port", "The service listens on 8080.", origin="curated")
    merging.link(memory_id=repetition.pk, curated_id=curated.pk, author=OPERATOR, why="the same")
    assert found(agent, "service listens") == {"port"}
    assert "listening" not in context.build(caller=caller_of(agent), q="service").text
    assert {memory.key for memory in memories.listing(caller=caller_of(agent))} == {"port", "listening"}
    assert memories.get(caller=caller_of(agent), key="listening").content == repetition.content


@pytest.mark.parametrize("what", ["written", "deleted", "withdrawn", "expires", "given", "sql"])
def test_m9_a_link_ends_when_the_curated_one_changes_or_goes(agent: Agent, distil: Distil, what: str) -> None:
    repetition = distil("listening")
    curated = distil("port", origin="curated", owner=None if what == "given" else agent)
    merging.link(memory_id=repetition.pk, curated_id=curated.pk, author=OPERATOR, why="the same")
    assert "listening" not in found(agent, "service listens")
    draft = memories.Draft(key="port", content="Something else.")
    if what == "written":
        memories.put(caller=caller_of(agent), draft=draft)
    elif what == "deleted":
        memories.delete(caller=caller_of(agent), key="port")
    elif what == "withdrawn":
        curation.withdraw(memory_id=curated.pk, author=OPERATOR, reason="r")
    elif what == "expires":
        curation.edit(memory_id=curated.pk, author=OPERATOR, reason="r", expires_at=curated.created_at)
    elif what == "given":
        other = AgentFactory.create(space=agent.space)
        curation.give_back(memory_id=curated.pk, agent=other, author=OPERATOR, reason="r")
    else:
        with acting(OPERATOR):
            Memory.objects.filter(pk=curated.pk).update(content="Changed by hand.")
    repetition.refresh_from_db()
    assert (repetition.repeats_id, repetition.version) == (None, 3)
    assert "listening" in found(agent, "service listens")


def test_m9_a_link_stands_while_the_curated_one_says_the_same(agent: Agent, distil: Distil) -> None:
    repetition, curated = distil("listening"), distil("port", origin="curated")
    merging.link(memory_id=repetition.pk, curated_id=curated.pk, author=OPERATOR, why="the same")
    curation.edit(memory_id=curated.pk, author=OPERATOR, reason="r", pinned=True)
    repetition.refresh_from_db()
    assert repetition.repeats_id == curated.pk


def test_m9_a_link_ends_when_the_repetition_changes(distil: Distil) -> None:
    repetition, curated = distil("listening"), distil("port", origin="curated")
    merging.link(memory_id=repetition.pk, curated_id=curated.pk, author=OPERATOR, why="the same")
    curation.edit(memory_id=repetition.pk, author=OPERATOR, reason="r", content="It listens on 9090 now.")
    repetition.refresh_from_db()
    assert repetition.repeats_id is None


def test_m4_nothing_is_linked_to_what_its_readers_may_not_see(agent: Agent, distil: Distil) -> None:
    other = AgentFactory.create(space=agent.space)
    theirs = distil("theirs", origin="curated", owner=other)
    for memory in (distil("mine"), distil("shared", owner=None)):
        with pytest.raises(Invalid):
            merging.link(memory_id=memory.pk, curated_id=theirs.pk, author=OPERATOR, why="w")
        with pytest.raises(IntegrityError), transaction.atomic():
            Memory.objects.filter(pk=memory.pk).update(repeats=theirs)


def test_m9_a_shared_memory_stays_linked_to_nothing_private(distil: Distil) -> None:
    repetition, curated = distil("listening"), distil("port", origin="curated")
    merging.link(memory_id=repetition.pk, curated_id=curated.pk, author=OPERATOR, why="the same")
    curation.share(memory_id=repetition.pk, author=OPERATOR, reason="r")
    repetition.refresh_from_db()
    assert repetition.repeats_id is None


def test_merging_what_is_not_there_is_refused(distil: Distil) -> None:
    memory = distil("port")
    gone = distil("gone")
    curation.remove(memory_id=gone.pk, author=OPERATOR, reason="r")
    with pytest.raises(NotFound):
        merge(memory, gone)
