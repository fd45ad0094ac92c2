"""The ticker: each thing in its time, over all workers together, and none stops the others."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.db import connection

from sessions_exec import regular
from sessions_exec.leases import ClockTimestamp
from sessions_exec.models import Tick
from sessions_exec.services import ticks


@pytest.fixture(autouse=True)
def _one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    # The ticker would close the connection that holds the test's transaction.
    monkeypatch.setattr(regular, "close_old_connections", lambda: None)
    monkeypatch.setattr(connection, "close", lambda: None)


@pytest.mark.django_db
def test_of_several_workers_one_gets_the_turn() -> None:
    assert ticks.claim("work", every=60)
    assert not ticks.claim("work", every=60)
    Tick.objects.update(at=ClockTimestamp() - timedelta(seconds=61))
    assert ticks.claim("work", every=60)
    assert not ticks.claim("work", every=60)


@pytest.mark.django_db
def test_what_was_done_is_noted() -> None:
    regular.do(regular.Tick(name="work", what="is tested", every=60, function=lambda: "3 done"))
    assert Tick.objects.get().outcome == "3 done"


@pytest.mark.django_db
def test_what_goes_wrong_with_one_does_not_stop_the_others() -> None:
    stop = threading.Event()
    done: list[int] = []

    def fail() -> None:
        raise ValueError("no")

    def work() -> None:
        done.append(1)
        if len(done) == 3:
            stop.set()

    regular.run(
        [
            regular.Tick(name="bad", what="is tested", every=0.05, function=fail),
            regular.Tick(name="good", what="is tested", every=0.05, function=work),
        ],
        stop=stop,
    )
    assert len(done) == 3


def test_a_schedule_counts_in_whole_minutes() -> None:
    assert [
        regular.Schedule(name="n", what="is tested", function="f", every=every).minutes for every in (60, 90, 1800)
    ] == [1, 1, 30]
