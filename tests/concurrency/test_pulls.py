"""Two clusters at one queue: neither waits for the other's task, nor takes it too (A3)."""

from __future__ import annotations

import pytest
from django_q.models import OrmQ

from sessions_exec import queue
from tests.support.races import Paused, outcome

pytestmark = pytest.mark.django_db(transaction=True)


def pull() -> int:
    pulled = queue._pull("agentmemory")
    assert isinstance(pulled, tuple)
    return pulled[0]


def test_a3_who_pulls_passes_over_what_another_is_pulling() -> None:
    queue.enqueue_many("a.b", [1, 2])
    first, second = OrmQ.objects.order_by("id").values_list("pk", flat=True)
    theirs: list[int] = []
    pulling = Paused(lambda: theirs.append(pull()))
    ours = pull()
    outcome(pulling.go_on())
    assert (theirs, ours) == ([first], second)
