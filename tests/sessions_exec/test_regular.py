"""The ticker: each thing in its time, over all workers together, and none stops the others."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta

import pytest
from django.db import connection

from sessions_exec import queue, regular, supervisor
from sessions_exec.leases import ClockTimestamp
from sessions_exec.models import Tick
from sessions_exec.services import ticks
from tests.support import standby


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


@pytest.mark.django_db(transaction=True)
def test_a_database_that_takes_reads_alone_is_told_of_once_and_once_when_that_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    works = [regular.Tick(name=name, what="is tested", every=60, function=lambda: "done") for name in ("a", "b")]
    guarded = supervisor.Supervisor._guarded
    with standby.reads_alone():
        for each in works * 2:
            regular.do(each)
        guarded(None, lambda: ticks.note("beat", ""))  # type: ignore[arg-type]
        assert queue.Broker("queue").dequeue() is None
        assert [record.action for record in caplog.records] == ["tick.reads_alone"]  # type: ignore[attr-defined]
        assert not Tick.objects.exists()
    for each in works * 2:
        regular.do(each)
    told = [record.action for record in caplog.records]  # type: ignore[attr-defined]
    assert told == ["tick.reads_alone", "tick.writes_again"]
    assert Tick.objects.filter(outcome="done").count() == 2


def test_a_schedule_counts_in_whole_minutes() -> None:
    assert [
        regular.Schedule(name="n", what="is tested", function="f", every=every).minutes for every in (60, 90, 1800)
    ] == [1, 1, 30]
