"""What is tidied now and then: added up exactly, in bounded steps, again and again (M6, A4)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from agentmemory.models import Memory, MemoryAccess, MemoryUsage
from agentmemory.services import memories, upkeep
from tests.factories import MemoryFactory

pytestmark = pytest.mark.django_db


def use(memory: Memory, times: int, *, days_ago: int = 0) -> None:
    memories.count_access([memory.pk] * times)
    if days_ago:
        at = timezone.now() - timedelta(days=days_ago)
        MemoryAccess.objects.order_by("-pk").filter(memory=memory).update(at=at)


def test_m6_uses_are_added_up_once_and_the_newest_time_is_kept() -> None:
    one, other = MemoryFactory.create(), MemoryFactory.create()
    use(one, 3, days_ago=5)
    use(other, 2)
    assert upkeep.add_up_accesses() == 2
    assert upkeep.add_up_accesses() == 0
    first = MemoryUsage.objects.get(memory=one)
    assert first.count == 3
    use(one, 1, days_ago=9)
    upkeep.add_up_accesses()
    again = MemoryUsage.objects.get(memory=one)
    assert (again.count, again.last_at) == (4, first.last_at)
    use(one, 1)
    upkeep.add_up_accesses()
    newest = MemoryUsage.objects.get(memory=one).last_at
    assert newest is not None
    assert first.last_at is not None
    assert newest > first.last_at
    assert MemoryUsage.objects.get(memory=other).count == 2


@pytest.mark.parametrize("known_rows", [1, 25])
def test_m6_one_step_takes_a_bounded_number_and_the_next_one_the_rest(
    known_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "MOST_AT_ONCE", 10)
    memory: Any = MemoryFactory.create()
    use(memory, known_rows)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE agentmemory_memoryaccess")
    use(memory, 25 - known_rows)
    counts = []
    while upkeep.add_up_accesses():
        counts.append((MemoryUsage.objects.get().count, MemoryAccess.objects.count()))
        assert Memory.objects.with_use().get().access_count == 25  # type: ignore[attr-defined]
    assert counts == [(10, 15), (20, 5), (25, 0)]


def test_m6_adding_up_leaves_curated_memories_and_their_history_as_they_are() -> None:
    memory = MemoryFactory.create()
    before = _row(memory)
    use(memory, 2)
    upkeep.run()
    assert _row(memory) == before
    assert memory.events.count() == 1


def test_the_upkeep_says_in_one_line_what_it_did() -> None:
    use(MemoryFactory.create(), 1)
    said = upkeep.run()
    assert "1 memories" in said
    assert "\n" not in said
    assert "0 memories" in upkeep.run()


def _row(memory: Memory) -> Any:
    with connection.cursor() as cursor:
        cursor.execute("SELECT ctid::text, m::text FROM agentmemory_memory m WHERE id = %s", [memory.pk])
        return cursor.fetchone()
