"""The pages of merges and purges: what they would do is told before, everything needs a reason, viewers do nothing."""

from __future__ import annotations

import html
import itertools
import re
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from agentmemory.admin import consolidations
from agentmemory.callers import Caller
from agentmemory.models import Activity, Agent, Certificate, Consolidation, Memory, Message
from agentmemory.services import consolidation, consolidation_plans, memories, neighbours, spaces
from tests.factories import AgentFactory, MemoryFactory, MessageFactory

pytestmark = pytest.mark.django_db
SAYS = "Releases go out on Tuesdays after the tests have passed."
CANARY = "zqcanaryx"
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def agent() -> Agent:
    return AgentFactory.create(handle="ada", space__slug="acme")


@pytest.fixture(autouse=True)
def time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that ends after a moment ends with what it is about, however busy this machine is."""
    monkeypatch.setattr(consolidations, "SECONDS_A_PAGE", 60.0)


def distilled(agent: Agent, key: str, content: str = SAYS, **values: Any) -> Memory:
    values = {"owner": agent, "space": agent.space, "origin": "distilled", **values}
    return MemoryFactory.create(key=key, content=content, **values)


def page(name: str, *args: Any) -> str:
    return reverse(f"admin:agentmemory_{name}", args=args)


def act(model: str, name: str, *rows: Any) -> str:
    return page(f"{model}_act", name) + "?ids=" + ",".join(str(row.pk) for row in rows)


def test_a_dry_run_shows_the_plan_and_does_exactly_that(operator: Client, agent: Agent) -> None:
    distilled(agent, "a")
    distilled(agent, f"b{HOSTILE}")
    text = operator.get(page("consolidation_dry_run")).content.decode()
    assert "of their words are the same" in text
    assert HOSTILE not in text
    (signed,) = re.findall(r'name="plan" value="([^"]+)"', text)
    distilled(agent, "c")
    assert operator.post(page("consolidation_dry_run"), {"plan": signed}).status_code == 422
    assert not Consolidation.objects.exists()
    answer = operator.post(page("consolidation_dry_run"), {"plan": signed, "reason": "tidying"}, follow=True)
    assert "1 merged, 0 linked, 0 forgotten" in answer.content.decode()
    assert Consolidation.objects.count() == 1
    assert Activity.objects.get(act="consolidate").reason == "tidying"
    operator.post(page("consolidation_dry_run"), {"plan": "forged", "reason": "x"})
    assert Consolidation.objects.count() == 1


def test_a_plan_that_was_shown_too_long_ago_is_not_carried_out(
    operator: Client, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    distilled(agent, "a")
    distilled(agent, "b")
    text = operator.get(page("consolidation_dry_run")).content.decode()
    (signed,) = re.findall(r'name="plan" value="([^"]+)"', text)
    monkeypatch.setattr(consolidations, "GOOD_FOR_SECONDS", -1)
    told = operator.post(page("consolidation_dry_run"), {"plan": signed, "reason": "tidying"}, follow=True)
    assert "The plan is too old" in told.content.decode()
    assert not Consolidation.objects.exists()


def test_what_ended_by_itself_is_not_listed_as_in_force(operator: Client, agent: Agent) -> None:
    distilled(agent, "curated-one", origin="curated")
    linked = distilled(agent, "linked-one")
    consolidation.run_all()
    where = page("consolidation_changelist") + "?state=force"
    assert "linked-one" in operator.get(where).content.decode()
    said = {"content": "Otherwise.", "importance": "0.5", "reason": "r"}
    operator.post(act("memory", "edit", linked), said, follow=True)
    assert Memory.objects.get(pk=linked.pk).repeats is None
    assert "linked-one" not in operator.get(where).content.decode()


def test_a_dry_run_looks_for_a_moment_and_goes_on_from_where_it_ended(
    operator: Client, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = itertools.count(step=61)
    monkeypatch.setattr(consolidation_plans, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    for n in range(3):
        distilled(agent, f"k{n}", f"Something else about {'abc'[n] * 9}.")
    where, seen, text = page("consolidation_dry_run"), 0, ""
    while where:
        text = operator.get(where).content.decode()
        assert "1 memory was looked at" in text
        seen += 1
        further = re.findall(r'id="further" href="([^"]+)"', text)
        where = page("consolidation_dry_run") + html.unescape(further[0]) if further else ""
    assert seen == 3
    assert "Nothing to merge, link or forget.<" in text
    assert operator.get(page("consolidation_dry_run"), {"after": "nonsense"}).status_code == 200


def test_a_dry_run_says_where_one_look_takes_longer_than_a_page_may(
    operator: Client, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(memory: Memory) -> list[Memory]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(5)")
        return []

    distilled(agent, "a")
    monkeypatch.setattr(consolidations, "SECONDS_A_PAGE", 0.04)
    monkeypatch.setattr(neighbours, "alike", slow)
    text = operator.get(page("consolidation_dry_run")).content.decode()
    assert "consolidate --dry-run" in text
    assert 'id="further"' not in text


def test_m9_every_merge_is_undone_by_one_click_with_a_reason(operator: Client, agent: Agent) -> None:
    distilled(agent, "a")
    distilled(agent, "b")
    consolidation.run_all()
    row = Consolidation.objects.get()
    listed = operator.get(page("consolidation_changelist")).content.decode()
    assert act("consolidation", "undo", row) in listed
    operator.post(act("consolidation", "undo", row), {"reason": "they differ"})
    assert not Memory.objects.exclude(merged_into=None).exists()
    assert "they differ" in operator.get(page("consolidation_changelist") + "?state=undone").content.decode()
    assert operator.get(page("consolidation_change", row.pk)).status_code == 200


def test_a_memory_is_merged_by_hand_and_its_page_says_so(operator: Client, agent: Agent) -> None:
    gone, into = distilled(agent, "gone", "x"), distilled(agent, "into", "y")
    assert operator.post(act("memory", "merge", gone), {"into": "nothing", "reason": "r"}).status_code == 422
    operator.post(act("memory", "merge", gone), {"into": "into", "reason": "the same thing"})
    assert 'id="merged"' in operator.get(page("memory_change", gone.pk)).content.decode()
    assert 'id="merged-from"' in operator.get(page("memory_change", into.pk)).content.decode()
    assert "gone" in operator.get(page("memory_changelist") + "?standing=merged").content.decode()
    operator.post(act("memory", "unmerge", gone), {"reason": "no"})
    gone.refresh_from_db()
    assert gone.merged_into_id is None


def test_a_disagreement_is_settled_by_a_link_or_by_both_being_right(operator: Client, agent: Agent) -> None:
    for key in ("port", "host"):
        distilled(agent, key, "8443", origin="curated")
        distilled(agent, key, "443")
    compared = operator.get(page("memory_compare")).content.decode()
    assert compared.count('id="pair-') == 2
    port, host = (Memory.objects.get(key=key, origin="distilled") for key in ("port", "host"))
    operator.post(act("memory", "link", port), {"reason": "curated is right"})
    operator.post(act("memory", "both", host), {"reason": "two hosts"})
    assert 'id="pair-' not in operator.get(page("memory_compare")).content.decode()
    port.refresh_from_db()
    host.refresh_from_db()
    assert port.repeats_id is not None
    assert host.repeats_id is None
    assert 'id="linked"' in operator.get(page("memory_change", port.pk)).content.decode()


def test_a_purge_tells_what_it_takes_and_then_takes_it(operator: Client, agent: Agent) -> None:
    memory = distilled(agent, "a")
    asked = operator.get(act("memory", "purge", memory)).content.decode()
    assert "versions in the history of memories" in asked
    assert "Nobody can undo it" in asked
    assert Memory.objects.count() == 1, "asking takes nothing"
    assert operator.post(act("memory", "purge", memory), {}).status_code == 422
    answer = operator.post(act("memory", "purge", memory), {"reason": "asked for"}, follow=True)
    assert answer.status_code == 200
    assert not Memory.objects.exists()
    certificate = Certificate.objects.get()
    assert certificate.who == "operator:olga"
    assert operator.get(page("certificate_changelist")).status_code == 200
    told = operator.get(page("certificate_change", certificate.pk)).content.decode()
    assert "memories: 1" in told
    assert "versions in the history of memories: " in told
    assert f"memories: {memory.pk}" in told


def test_everything_about_something_is_found_previewed_and_purged(operator: Client, agent: Agent) -> None:
    memory = distilled(agent, "name", f"It is {CANARY}. {HOSTILE}")
    message = MessageFactory.create(session__agent=agent, text=f"We call it {CANARY}.", content=f"It is {CANARY}.")
    other = distilled(agent, "other", "Something else.")
    text = operator.get(page("certificate_find"), {"q": CANARY}).content.decode()
    assert str(memory.pk) in text
    assert str(other.pk) not in text
    assert HOSTILE not in text
    chosen = {"memory": [str(memory.pk)], "message": [str(message.pk)]}
    preview = operator.post(page("certificate_find"), {**chosen, "step": "preview"}).content.decode()
    assert "messages <span" in preview
    assert Message.objects.count() == 1
    operator.post(page("certificate_find"), {**chosen, "step": "purge"})
    assert Message.objects.count() == 1, "a reason is needed"
    operator.post(page("certificate_find"), {**chosen, "step": "purge", "reason": "asked for"})
    assert not Message.objects.exists()
    assert list(Memory.objects.values_list("key", flat=True)) == ["other"]
    assert operator.get(page("certificate_find"), {"q": "ab"}).status_code == 200


def test_t4_an_archived_agent_is_deleted_with_a_choice(operator: Client, agent: Agent) -> None:
    distilled(agent, "a")
    heir = AgentFactory.create(space=agent.space, handle="grace")
    assert "Delete for good" not in operator.get(page("agent_change", agent.pk)).content.decode()
    spaces.archive_agent(agent_id=agent.pk)
    assert "Delete for good" in operator.get(page("agent_change", agent.pk)).content.decode()
    assert operator.post(act("agent", "delete", agent), {"reason": "left"}).status_code == 422
    wrong = {"reason": "left", "choice": "give", "heir": "nobody"}
    assert operator.post(act("agent", "delete", agent), wrong).status_code == 422
    answer = operator.post(act("agent", "delete", agent), {**wrong, "heir": "grace"}, follow=True)
    assert answer.status_code == 200
    assert not Agent.objects.filter(pk=agent.pk).exists()
    assert Memory.objects.get().owner == heir


def test_a_viewer_looks_and_does_nothing(viewer: Client, agent: Agent) -> None:
    memory = distilled(agent, "a")
    distilled(agent, "b")
    consolidation.run_all()
    row = Consolidation.objects.get()
    assert viewer.get(page("consolidation_changelist")).status_code == 200
    listed = viewer.get(page("consolidation_changelist")).content.decode()
    assert act("consolidation", "undo", row).replace("&", "&amp;") not in listed
    assert viewer.get(page("consolidation_dry_run")).status_code == 403
    assert viewer.get(page("certificate_find"), {"q": "releases"}).status_code == 403
    assert viewer.post(act("consolidation", "undo", row), {"reason": "r"}).status_code == 403
    assert viewer.post(act("memory", "purge", memory), {"reason": "r"}).status_code == 403
    assert viewer.get(page("certificate_changelist")).status_code == 200


def test_the_list_of_merges_asks_no_query_for_each_row(
    operator: Client, agent: Agent, django_assert_max_num_queries: Any
) -> None:
    for n in range(8):
        distilled(agent, f"a{n}", f"Statement {n} about city number {n}.")
        distilled(agent, f"b{n}", f"Statement {n} about city number {n}")
    consolidation.run_all()
    with django_assert_max_num_queries(25):
        operator.get(page("consolidation_changelist"))


def test_a_forgotten_memory_is_brought_back(operator: Client, agent: Agent, settings: Any) -> None:
    settings.AGENTMEMORY_FORGET_AFTER = 60.0
    memory = distilled(agent, "a")
    Memory.objects.filter(pk=memory.pk).update(updated_at=timezone.now() - timedelta(days=2))
    consolidation.run_all()
    row = Consolidation.objects.get()
    operator.post(act("consolidation", "undo", row), {"reason": "needed"})
    assert [found.key for found in memories.listing(caller=Caller(space=agent.space, agent=agent))] == ["a"]
