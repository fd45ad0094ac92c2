"""The processes of a storm: holders, scanners and users of a few sessions, who write down what they believe they did.

They are forked by the server of `faulty_worker`, talk to the database through `cutting.Cutter`, and know nothing of
each other. Whatever goes wrong with a connection, they cannot know what became of the last act: a holder lets go of
what it held, a user asks again until it is answered.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from django.db import InterfaceError, OperationalError, connection

from agentmemory.models import Session
from sessions_exec import faults
from sessions_exec.errors import InputConflict, LeaseHeld, LeaseLost
from sessions_exec.services import executions, inbox, recovery
from tests.faults.ledger import Entry, Ledger, uid
from tests.support import faulty_worker, running
from tests.support.faulty_worker import Orders

TERM = 0.4
LOST = (OperationalError, InterfaceError)
# Where a process can be told to die or to stop, beside the points of the services.
DISPATCHED = "holder.dispatched"


class Work:
    """One process at work on sessions, until the folder says that it is over."""

    def __init__(self, folder: Path, sessions: list[int]) -> None:
        self.folder, self.sessions = folder, sessions
        self.ledger = Ledger(folder / "ledger")
        self.chance = random.Random()
        self.count = 0

    def over(self) -> bool:
        return (self.folder / "over").exists()

    def session(self) -> Session:
        return Session.objects.select_related("agent").get(pk=self.chance.choice(self.sessions))

    def name(self) -> str:
        self.count += 1
        return f"{os.getpid()}-{self.count}"

    def do(self, entry: Entry, act: Callable[[], Any]) -> Any:
        """Write down that it is tried, and that it was answered."""
        self.ledger.note(entry)
        brought = act()
        self.ledger.note(entry._replace(answered=True))
        return brought


def hold(work: Work) -> None:
    """Acquire a session, take a few steps in it, and give it back; or be thrown out."""
    session = work.session()
    try:
        held = running.acquire(session, f"holder {os.getpid()}", seconds=TERM)
    except LeaseHeld:
        time.sleep(0.02)
        return
    work.ledger.note(Entry(session.pk, "acquire", held.epoch, answered=True))
    with suppress(LeaseLost):
        for _ in range(work.chance.randint(1, 4)):
            _promote(work, session, held, "step")
            _step(work, session, held)
        _promote(work, session, held, "idle")
        if work.chance.random() < 0.5:
            _say(work, session, held, "result")
        if work.chance.random() < 0.7:
            entry = Entry(session.pk, "release", held.epoch)
            work.do(entry, lambda: executions.release(session=session, held=held))


def _step(work: Work, session: Session, held: executions.Held) -> None:
    executions.renew(session=session, held=held, phase="unknown")
    answer = uid(held.epoch, f"answer {work.name()}")
    work.ledger.note(Entry(session.pk, "dispatch", held.epoch, (answer,)))
    faults.reach(DISPATCHED)
    _say(work, session, held, "user")
    _say(work, session, held, "assistant", answer)
    executions.renew(session=session, held=held, phase="safe")


def _say(work: Work, session: Session, held: executions.Held, kind: str, name: str = "") -> None:
    name = name or uid(held.epoch, f"{kind} {work.name()}")
    entry = Entry(session.pk, "say", held.epoch, (name,))
    work.do(entry, lambda: running.say(session, name, type=kind, guard=held))


def _promote(work: Work, session: Session, held: executions.Held, boundary: str) -> None:
    rows = inbox.promote(session=session, guard=held, boundary=boundary)
    if rows:
        work.ledger.note(Entry(session.pk, "promote", held.epoch, tuple(row.uid for row in rows), answered=True))


def scan(work: Work) -> None:
    recovery.scan()
    time.sleep(0.05)


def use(work: Work) -> None:
    """Admit a prompt until it is answered; now and then take one back, flip it, or interrupt."""
    session, name = work.session(), work.name()
    delivery = work.chance.choice(["steer", "queue"])
    entry = Entry(session.pk, "admit", 0, (name,))
    work.do(entry, lambda: _until_answered(lambda: _admit(session, name, delivery)))
    with suppress(InputConflict):
        match work.chance.randrange(6):
            case 0:
                work.do(entry._replace(act="cancel"), lambda: inbox.cancel(session=session, uid=name))
            case 1:
                inbox.flip(session=session, uid=name, delivery="queue")
            case 2:
                executions.interrupt(session=session)
    time.sleep(0.03)


def _admit(session: Session, name: str, delivery: str) -> None:
    inbox.admit(session=session, uid=name, prompt=f"Prompt {name}.", delivery=delivery)


def _until_answered(act: Callable[[], None]) -> None:
    while True:
        try:
            return act()
        except LOST:
            connection.close()


ROLES = {"hold": hold, "scan": scan, "use": use}


def start(role: str, *, orders: Orders, sessions: list[int], database: dict[str, Any], mutant: str = "") -> BaseProcess:
    """Fork one process of a role, with a rule broken in it where one is named."""
    process = faulty_worker.FORKS.Process(
        target=_run, args=(role, str(orders.folder), sessions, database, mutant), daemon=True
    )
    process.start()
    return process


def _run(role: str, folder: str, sessions: list[int], database: dict[str, Any], mutant: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    connection.settings_dict.update(database)
    if mutant:
        from tests.sessions_exec.mutants import MUTANTS

        next(each for each in MUTANTS if each.name == mutant).services(pytest.MonkeyPatch())
    faults.install(Orders(Path(folder)).reach)
    work = Work(Path(folder), sessions)
    while not work.over():
        try:
            ROLES[role](work)
        except (LeaseLost, *LOST):
            connection.close()
    connection.close()
