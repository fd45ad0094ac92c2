"""A storm over two sessions, after which the ledger is held against the database (S1 to S10).

Real processes hold, scan and use the sessions, while they are killed, stopped for longer than their lease, and cut off
around their commits.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.process import BaseProcess
from typing import Any

import psutil
import pytest
from django.db import connection

from agentmemory.models import Session
from sessions_exec.models import Execution, Recovery
from sessions_exec.services import inbox, recovery
from tests.factories import SessionFactory
from tests.faults import ledger
from tests.faults.conftest import ROUNDS
from tests.faults.ledger import Ledger
from tests.support import clusters, running, storming
from tests.support.cutting import Cutter
from tests.support.faulty_worker import ANYWHERE, Orders

pytestmark = pytest.mark.django_db(transaction=True)

LONG = ROUNDS > 2
PARTS = ["hold", "hold", "hold", "scan", "use"] + ["scan"] * LONG
# What must have happened before a round is over, however long that takes.
QUOTA = {"killed": 3, "stopped": 2, "terminated": 2, "cut before": 2, "cut after": 2, "taken over": 2}
PATIENCE = 300.0
# A rule that is broken in every process, and the promise that is seen to be broken then.
BROKEN = [("epoch", "S3"), *[("silent_take_over", "S1"), ("epoch_stands_still", "S2")] * LONG]


class Storm:
    """Processes at work, and what is done to them."""

    def __init__(self, orders: Orders, cutter: Cutter, mutant: str) -> None:
        self.orders, self.cutter, self.mutant = orders, cutter, mutant
        self.sessions = [SessionFactory.create() for _ in range(2)]
        self.seen: Counter[str] = Counter()
        self.processes = [(role, self._start(role)) for role in PARTS]
        self._stopped: dict[int, float] = {}

    def _start(self, role: str) -> BaseProcess:
        names = ("HOST", "PORT", "NAME", "USER", "PASSWORD")
        database: dict[str, Any] = {name: connection.settings_dict[name] for name in names}
        database["HOST"] = self.cutter.folder
        sessions = [session.pk for session in self.sessions]
        return storming.start(role, orders=self.orders, sessions=sessions, database=database, mutant=self.mutant)

    def blow(self) -> None:
        """One look around: those that stopped go on after their lease, those that died are replaced."""
        for number, (role, process) in enumerate(self.processes):
            if not process.is_alive():
                self.seen["killed"] += 1
                self.processes[number] = (role, self._start(role))
        self._wake_those_that_slept()
        self.seen["cut before"], self.seen["cut after"] = self.cutter.cut["before"], self.cutter.cut["after"]
        self.seen["taken over"] = Recovery.objects.count()

    def _wake_those_that_slept(self) -> None:
        for _, process in self.processes:
            with suppress(psutil.NoSuchProcess):
                found = psutil.Process(process.pid)
                if found.status() != psutil.STATUS_STOPPED:
                    continue
                since = self._stopped.setdefault(found.pid, time.monotonic())
                if time.monotonic() - since > 1.5 * storming.TERM:
                    del self._stopped[found.pid]
                    self.seen["stopped"] += 1
                    found.resume()

    def _terminate_one(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity WHERE pid <> "
                "pg_backend_pid() AND datname = current_database() AND backend_type = 'client backend' "
                "ORDER BY random() LIMIT 1) AS one"
            )
            self.seen["terminated"] += cursor.fetchone()[0]

    def rage(self) -> None:
        """Until each thing has happened as often as the quota says."""
        end = time.monotonic() + PATIENCE
        while lacking := [name for name, times in QUOTA.items() if self.seen[name] < times]:
            assert time.monotonic() < end, f"not in {PATIENCE:g} s: {self.seen}"
            if random.random() < 0.25:
                self._strike(random.choice(lacking))
            self.blow()
            time.sleep(0.05)

    def _strike(self, name: str) -> None:
        _, process = random.choice(self.processes)
        match name:
            case "killed":
                self._order("kill") if random.random() < 0.5 else process.kill()
            case "stopped":
                self._order("stop")
            case "terminated":
                self._terminate_one()
            case "cut before" | "cut after" if not self.cutter.armed:
                self.cutter.armed.append(name.removeprefix("cut "))

    def _order(self, action: str) -> None:
        if not self.orders.left:
            self.orders.give(random.choice([ANYWHERE, storming.DISPATCHED]), action)

    def settle(self) -> None:
        """Let all come to an end, and see to what they left, as a scanner and a runner would."""
        self.orders.cancel()
        self.cutter.armed.clear()
        (self.orders.folder / "over").touch()
        end = time.monotonic() + PATIENCE
        while any(process.is_alive() for _, process in self.processes):
            assert time.monotonic() < end, "a process does not end"
            self._wake_those_that_slept()
            time.sleep(0.02)
        for session in self.sessions:
            clusters.until(lambda s=session: not Execution.objects.live().filter(session=s).exists())  # type: ignore[misc]
        recovery.scan()
        for session in self.sessions:
            _run_to_the_end(session)

    def end(self) -> None:
        for _, process in self.processes:
            process.kill()
            process.join()

    def findings(self) -> list[str]:
        entries = Ledger(self.orders.folder / "ledger").entries()
        found: list[str] = []
        for session in self.sessions:
            mine = [entry for entry in entries if entry.session == session.pk]
            found += ledger.findings(ledger.facts(session), mine)
        return found

    def report(self) -> str:
        entries = Ledger(self.orders.folder / "ledger").entries()
        acts = Counter(entry.act for entry in entries if entry.answered)
        told = {name: self.seen[name] for name in sorted(self.seen)}
        return f"{dict(acts)}; {told}"


def _run_to_the_end(session: Session) -> None:
    held = running.acquire(session, "last", seconds=60)
    while inbox.promote(session=session, guard=held, boundary="idle"):
        pass


@pytest.fixture
def storm(orders: Orders, request: pytest.FixtureRequest, transactional_db: None) -> Iterator[Storm]:
    cutter = Cutter()
    raging = Storm(orders, cutter, getattr(request, "param", ""))
    yield raging
    raging.end()
    cutter.close()


@pytest.mark.parametrize("number", range(ROUNDS if LONG else 1))
def test_s1_to_s10_hold_in_a_storm(number: int, storm: Storm) -> None:
    storm.rage()
    storm.settle()
    assert storm.findings() == []
    for session in storm.sessions:
        assert "pending" not in ledger.facts(session).inputs.values()
    sys.stdout.write(f"storm {number + 1}: {storm.report()}\n")


@pytest.mark.parametrize(("storm", "rule"), BROKEN, indirect=["storm"], ids=[name for name, _ in BROKEN])
def test_control_in_a_storm_without_a_guard_the_ledger_shows_the_damage(storm: Storm, rule: str) -> None:
    end = time.monotonic() + PATIENCE
    while not any(line.startswith(rule) for line in storm.findings()):
        assert time.monotonic() < end, "nothing is seen"
        if not storm.orders.left:
            storm.orders.give(storming.DISPATCHED, "stop")
        storm.blow()
        time.sleep(0.05)
