"""Two operators who do the same to one row in the same instant: it is done and on record once, the other one is told.

With the guard taken out both are on record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from agentmemory import authorship
from agentmemory.authorship import Author
from agentmemory.errors import Invalid
from agentmemory.models import Activity, Agent, Memory
from agentmemory.services import curation, merging, records, spaces
from tests.factories import AgentFactory, MemoryFactory
from tests.support.races import Actor

pytestmark = pytest.mark.django_db(transaction=True)

Act = Callable[[Author], Any]


def of(memory: Memory, act: Callable[..., Any], **more: Any) -> Act:
    return lambda author: act(memory_id=memory.pk, author=author, reason="why", **more)


def one(agent: Agent, **values: Any) -> Memory:
    return MemoryFactory.create(**{"space": agent.space, "owner": agent, "key": "k", "content": "One.", **values})


def restored(agent: Agent) -> Act:
    memory = one(agent)
    with transaction.atomic(), authorship.acting(Author(kind="operator", name="ann")):
        Memory.objects.update(content="Two.", version=2)
    return of(memory, curation.restore_version, version=1)


def beside(agent: Agent, act: Callable[..., Any], other: str, **more: Any) -> Act:
    curated = one(agent, content="Two.")
    return of(one(agent, origin="distilled"), act, **{other: curated.pk}, **more)


def to_a_row(name: str, run: Callable[[], None], row: Any) -> Act:
    space = getattr(row, "space", row)
    return lambda author: records.acted(name, run, who=str(author), target=row, reason="why", space=space)


ACTS: dict[str, Callable[[Agent], Act]] = {
    "edit": lambda agent: of(one(agent), curation.edit, pinned=True),
    "restore": restored,
    "promote": lambda agent: of(one(agent, origin="distilled"), curation.promote),
    "share": lambda agent: of(one(agent), curation.share),
    "give back": lambda agent: of(one(agent, owner=None), curation.give_back, agent=agent),
    "withdraw": lambda agent: of(one(agent), curation.withdraw),
    "reinstate": lambda agent: of(one(agent, withdrawn_by="x", withdrawn_at="2026-01-01T00:00Z"), curation.reinstate),
    "link": lambda agent: beside(agent, merging.link, "curated_id", why="by hand"),
    "both": lambda agent: beside(agent, merging.keep_apart, "other_id"),
    "archive": lambda agent: to_a_row("archive", lambda: spaces.archive(space_id=agent.space_id), agent.space),
    "archive agent": lambda agent: to_a_row("archive", lambda: spaces.archive_agent(agent_id=agent.pk), agent),
    "pause": lambda agent: to_a_row("pause", lambda: spaces.pause_agent(agent_id=agent.pk), agent),
}
GUARDS: dict[str, Callable[..., Any]] = {
    "agentmemory.services.curation._refuse": lambda done, words: None,
    "agentmemory.services.merging._check_link": lambda memory, curated: None,
    "agentmemory.services.merging.kept_apart": lambda memory_id, other_ids: set(),
    "agentmemory.services.spaces._done": lambda changed, otherwise: None,
}


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "unguarded"])
@pytest.mark.parametrize("name", ACTS)
def test_m5_of_two_operators_who_do_the_same_at_once_one_is_on_record(
    name: str, guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    act = ACTS[name](AgentFactory.create(handle="ada"))
    for place, instead in () if guarded else GUARDS.items():
        monkeypatch.setattr(place, instead)
    with transaction.atomic():
        act(Author(kind="operator", name="olga"))
        second = Actor(lambda: act(Author(kind="operator", name="otto")))
        assert second.waits(), "it has come before the first one is done"
    assert isinstance(second.join().error, Invalid) is guarded
    who = list(Activity.objects.order_by("pk").values_list("who", flat=True))
    assert who == (["operator:olga"] if guarded else ["operator:olga", "operator:otto"])
