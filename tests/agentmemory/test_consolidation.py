"""Consolidation: planned, carried out as planned, undone; curated memories untouched (M9, M2)."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone
from pytest_django import Settings

from agentmemory import likeness
from agentmemory.authorship import Author
from agentmemory.callers import Caller
from agentmemory.models import Activity, Agent, Consolidation, Memory, MemoryAccess, MemoryEvent, MemorySource
from agentmemory.services import consolidation, consolidation_plans, curation, merging, neighbours, upkeep
from tests.factories import AgentFactory, MemoryFactory, SessionFactory

pytestmark = pytest.mark.django_db
OPERATOR = Author(kind="operator", name="olga")
SAYS = "Releases go out on Tuesdays after the tests have passed."
SAYS_AGAIN = "The releases go out on Tuesdays after the tests passed."


@pytest.fixture
def agent() -> Agent:
    return AgentFactory.create(handle="ada", space__slug="acme")


def distilled(agent: Agent, key: str, content: str, **values: Any) -> Memory:
    values = {"owner": agent, "space": agent.space, "origin": "distilled", **values}
    return MemoryFactory.create(key=key, content=content, **values)


def curated(agent: Agent, key: str, content: str, **values: Any) -> Memory:
    return distilled(agent, key, content, origin="curated", **values)


def planned() -> list[tuple[str, str, str]]:
    return [(item.kind, item.key, item.other_key) for item in consolidation_plans.plan().items]


def rows() -> list[Any]:
    return list(Memory.objects.order_by("pk").values_list("pk", "version", "content", "merged_into", "repeats", "tags"))


def age(memory: Memory, days: float) -> None:
    """Let a memory be so old: past the triggers, which would write today's version of it."""
    MemoryFactory._meta.model.objects.filter(pk=memory.pk).update(updated_at=timezone.now() - timedelta(days=days))


def test_m9_a_dry_run_tells_what_would_happen_and_why_and_changes_nothing(agent: Agent) -> None:
    distilled(agent, "release-day", SAYS)
    distilled(agent, "releases", SAYS_AGAIN)
    distilled(agent, "port", "The port is 8080.")
    before = rows()
    (item,) = consolidation_plans.plan().items
    assert (item.kind, {item.key, item.other_key}) == ("merge", {"release-day", "releases"})
    assert "of their words are the same" in item.why
    assert (rows(), MemoryEvent.objects.count(), Consolidation.objects.count()) == (before, 3, 0)


def test_m9_a_plan_is_carried_out_and_nothing_else_is(agent: Agent) -> None:
    first = distilled(agent, "release-day", SAYS)
    distilled(agent, "releases", SAYS_AGAIN)
    plan = consolidation_plans.plan()
    distilled(agent, "release-days", SAYS)
    assert str(consolidation.run(plan=plan)) == "1 merged, 0 linked, 0 forgotten, 0 had changed"
    assert Memory.objects.get(key="releases").merged_into_id == first.pk
    assert Memory.objects.get(key="release-days").merged_into_id is None
    event = MemoryEvent.objects.filter(key="releases").latest("pgh_id")
    assert event.pgh_context["author"] == "system:consolidation"


def test_m9_what_has_changed_since_the_plan_is_left_alone(agent: Agent) -> None:
    distilled(agent, "release-day", SAYS)
    other = distilled(agent, "releases", SAYS_AGAIN)
    plan = consolidation_plans.plan()
    curation.edit(memory_id=other.pk, author=OPERATOR, reason="r", content="Releases are on Mondays.")
    assert consolidation.run(plan=plan).skipped == 1
    assert not Memory.objects.exclude(merged_into=None).exists()


def test_m9_what_was_looked_at_is_looked_at_again_only_when_it_changes(agent: Agent) -> None:
    distilled(agent, "port", "The port is 8080.")
    assert len(consolidation_plans.plan().looked) == 1
    consolidation.run_all()
    assert not consolidation_plans.plan().looked
    assert len(consolidation_plans.plan(afresh=True).looked) == 1
    distilled(agent, "listening", "The port is 8080")
    assert planned() == [("merge", "listening", "port")]


def test_m9_two_that_differ_in_a_number_or_a_negation_are_not_merged(agent: Agent) -> None:
    distilled(agent, "a", "The service runs on port 8080 in production.")
    distilled(agent, "b", "The service runs on port 8081 in production.")
    distilled(agent, "c", "The service never runs on port 8080 in production.")
    assert planned() == []


def test_m9_never_across_owners_or_origins(agent: Agent) -> None:
    distilled(agent, "mine", SAYS)
    distilled(agent, "theirs", SAYS, owner=AgentFactory.create(space=agent.space))
    distilled(agent, "shared", SAYS, owner=None)
    distilled(AgentFactory.create(), "elsewhere", SAYS)
    assert planned() == []


@pytest.mark.parametrize("values", [{"edited_by": "operator:olga"}, {"withdrawn_at": timezone.now()}])
def test_m9_what_a_person_edited_or_withdrew_is_left_alone(agent: Agent, values: dict[str, Any]) -> None:
    distilled(agent, "release-day", SAYS, **values)
    distilled(agent, "releases", SAYS_AGAIN)
    assert planned() == []


def test_m9_the_pinned_and_the_more_used_survive(agent: Agent) -> None:
    distilled(agent, "old", SAYS)
    used = distilled(agent, "used", SAYS_AGAIN)
    MemoryAccess.objects.create(memory=used)
    assert planned() == [("merge", "old", "used")]
    distilled(agent, "pinned", SAYS, pinned=True)
    consolidation.run_all()
    assert set(Memory.objects.filter(merged_into=None).values_list("key", flat=True)) == {"pinned"}


def test_m2_m9_a_repetition_of_a_curated_memory_is_linked_and_the_curated_one_untouched(agent: Agent) -> None:
    kept = curated(agent, "release-day", SAYS)
    shared = curated(agent, "port", "The service listens on port 8080.", owner=None)
    distilled(agent, "releases", SAYS_AGAIN)
    distilled(agent, "listening", "The service listens on port 8080")
    before = Memory.objects.filter(origin="curated").order_by("pk").values()
    was = list(before)
    assert consolidation.run_all().link == 2
    assert Memory.objects.get(key="releases").repeats_id == kept.pk
    assert Memory.objects.get(key="listening").repeats_id == shared.pk
    assert list(before.all()) == was
    assert planned() == []


def test_m9_what_a_new_curated_memory_says_is_found_where_it_is_repeated(agent: Agent) -> None:
    other = AgentFactory.create(space=agent.space)
    distilled(agent, "a", SAYS)
    distilled(other, "b", SAYS_AGAIN)
    consolidation.run_all()
    curated(agent, "release-day", SAYS, owner=None)
    assert {each[1] for each in planned()} == {"a", "b"}


def test_m4_nothing_is_planned_between_two_owners_or_for_what_ends_one_day(agent: Agent) -> None:
    distilled(agent, "releases", SAYS_AGAIN)
    curated(agent, "theirs", SAYS, owner=AgentFactory.create(space=agent.space))
    curated(agent, "for-now", SAYS, expires_at=timezone.now() + timedelta(days=1))
    assert planned() == []


def test_m9_two_that_are_pinned_are_both_left(agent: Agent) -> None:
    distilled(agent, "release-day", SAYS, pinned=True)
    distilled(agent, "releases", SAYS_AGAIN, pinned=True)
    assert planned() == []


def test_m9_each_is_linked_once_and_looked_at_afresh_not_again(agent: Agent) -> None:
    curated(agent, "release-day", SAYS)
    curated(agent, "for-all", SAYS, owner=None)
    distilled(agent, "releases", SAYS_AGAIN)
    assert [item[:2] for item in planned()] == [("link", "releases")]
    assert consolidation.run_all().link == 1
    assert not consolidation_plans.plan(afresh=True).items


def test_m9_a_repetition_is_linked_again_once_the_curated_one_says_so_again(agent: Agent) -> None:
    kept = curated(agent, "release-day", SAYS)
    distilled(agent, "releases", SAYS_AGAIN)
    consolidation.run_all()
    for content, linked in (("Releases are on Mondays.", None), (SAYS, kept.pk)):
        curation.edit(memory_id=kept.pk, author=OPERATOR, reason="r", content=content)
        consolidation.run_all()
        assert Memory.objects.get(key="releases").repeats_id == linked


def test_m9_what_was_undone_is_not_done_again(agent: Agent) -> None:
    distilled(agent, "release-day", SAYS)
    gone = distilled(agent, "releases", SAYS_AGAIN)
    consolidation.run_all()
    row = Consolidation.objects.get()
    assert consolidation.undo(consolidation_id=row.pk, author=OPERATOR, reason="they differ").pk == gone.pk
    assert consolidation.run_all(afresh=True).merge == 0
    assert not Memory.objects.exclude(merged_into=None).exists()


def test_m9_forgetting_is_off_by_default_and_takes_the_unused_distilled_alone(agent: Agent, settings: Settings) -> None:
    kept: dict[str, dict[str, Any]] = {"pinned": {"pinned": True}, "edited": {"edited_by": "o"}, "used": {}, "new": {}}
    for key, values in kept.items():
        memory = distilled(agent, key, f"About {key} {uuid.uuid4()}", **values)
        if key != "new":
            age(memory, 100)
    MemoryAccess.objects.create(memory=Memory.objects.get(key="used"))
    unused = distilled(agent, "unused", "Nobody asks for this one.")
    age(unused, 100)
    assert planned() == []
    settings.AGENTMEMORY_FORGET_AFTER = 90 * 86_400.0
    assert planned() == [("forget", "unused", "")]
    consolidation.run_all()
    unused.refresh_from_db()
    assert unused.withdrawn_by == "system:consolidation"
    assert unused.withdrawn_reason.startswith("unused since")
    consolidation.undo(consolidation_id=Consolidation.objects.get().pk, author=OPERATOR, reason="keep it")
    age(unused, 100)
    assert planned() == []


def test_m9_what_is_used_after_the_plan_is_not_forgotten(agent: Agent, settings: Settings) -> None:
    settings.AGENTMEMORY_FORGET_AFTER = 86_400.0
    memory = distilled(agent, "unused", "Nobody asks for this one.")
    age(memory, 10)
    plan = consolidation_plans.plan()
    MemoryAccess.objects.create(memory=memory)
    assert consolidation.run(plan=plan).skipped == 1


def test_m9_what_was_used_lately_and_added_up_since_is_not_forgotten(agent: Agent, settings: Settings) -> None:
    settings.AGENTMEMORY_FORGET_AFTER = 86_400.0
    memory = distilled(agent, "used", "Somebody asks for this one.")
    age(memory, 10)
    MemoryAccess.objects.create(memory=memory)
    upkeep.add_up_accesses()
    assert not MemoryAccess.objects.exists()
    assert planned() == []


def test_m2_forgetting_never_takes_a_curated_memory(agent: Agent, settings: Settings) -> None:
    settings.AGENTMEMORY_FORGET_AFTER = 0.001
    curated(agent, "kept", "Written on purpose.")
    assert planned() == []


def test_a_run_has_a_bound_and_the_next_goes_on(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consolidation_plans, "LOOKS", 2)
    for n in range(5):
        distilled(agent, f"k{n}", f"Statement {n} about the weather in city {n}.")
    seen: set[Any] = set()
    after = None
    for expected in (2, 2, 1):
        plan = consolidation_plans.plan(after=after)
        assert len(plan.looked) == expected
        seen |= set(plan.looked)
        after = plan.next
    assert (len(seen), after) == (5, None)
    consolidation.run_all(seconds=0)
    assert len(consolidation_plans.plan().looked) == 2
    consolidation.run_all()
    assert not consolidation_plans.plan().looked


def test_t4_what_is_archived_is_left_alone(agent: Agent) -> None:
    distilled(agent, "a", SAYS)
    distilled(agent, "b", SAYS_AGAIN)
    type(agent).objects.filter(pk=agent.pk).update(archived_at=timezone.now())
    assert planned() == []


def test_a_source_that_came_to_the_merged_one_at_the_last_moment_follows_it(agent: Agent) -> None:
    survivor, gone = distilled(agent, "a", SAYS), distilled(agent, "b", SAYS_AGAIN)
    consolidation.run_all()
    session = SessionFactory.create(agent=agent, name="s1")
    late = {"space": agent.space, "memory": gone, "session": session, "session_name": "s1", "uid": "u1", "seq": 1}
    MemorySource.objects.create(**late)
    assert "1 sources followed" in consolidation.daily()
    assert MemorySource.objects.get(memory=survivor).came_with == gone.pk
    assert consolidation.gather_sources() == 0


def test_neighbours_are_not_all_compared(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(60):
        distilled(agent, f"k{n}", f"Number {n} and its word w{n}x{n} stand here alone.")
        distilled(agent, f"s{n}", SAYS)
    compared: list[int] = []
    real = likeness.near_duplicate

    def counted(a: str, b: str) -> bool:
        compared.append(1)
        return real(a, b)

    monkeypatch.setattr(likeness, "near_duplicate", counted)
    consolidation_plans.plan()
    assert 0 < len(compared) <= 120 * neighbours.NEAREST


def test_the_command_plans_and_carries_out(agent: Agent, capsys: pytest.CaptureFixture[str]) -> None:
    distilled(agent, "release-day", SAYS)
    distilled(agent, "releases", SAYS_AGAIN)
    call_command("consolidate", "--space", "acme", "--agent", "ada", "--dry-run")
    told = capsys.readouterr().out
    assert "merge" in told
    assert "releases" in told
    assert "Nothing was changed" in told
    assert not Memory.objects.exclude(merged_into=None).exists()
    call_command("consolidate", "--space", "acme")
    assert "1 merged" in capsys.readouterr().out
    assert [(row.act, row.detail) for row in Activity.objects.all()] == [("consolidate", {"done": 1})]


def test_an_agent_that_reads_a_vanished_key_counts_for_the_survivor(agent: Agent) -> None:
    from agentmemory.services import memories

    survivor, gone = distilled(agent, "a", SAYS), distilled(agent, "b", SAYS_AGAIN)
    merging.merge(memory_id=gone.pk, into_id=survivor.pk, author=OPERATOR, why="w")
    memories.get(caller=Caller(space=agent.space, agent=agent), key="b")
    assert MemoryAccess.objects.get().memory_id == survivor.pk
