"""Races on real threads with connections of their own, brought to the same point again and again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction

PATIENCE = 60.0


class Actor:
    """One thread at work. `waits()` tells whether it has come to wait for a lock of another."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self._work = work
        self._pid: int | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                self._pid = cursor.fetchone()[0]
            self.result = self._work()
        except BaseException as error:  # noqa: BLE001 - it is the result
            self.error = error
        finally:
            connection.close()

    def done(self) -> bool:
        return not self._thread.is_alive()

    def join(self) -> Actor:
        self._thread.join(PATIENCE)
        assert self.done(), "an actor does not end"
        return self

    def brought(self) -> Any:
        """Wait for its end, and return or raise what it did."""
        if error := self.join().error:
            raise error
        return self.result

    def waits(self) -> bool:
        """Whether it waits for a lock; false when it ends without waiting."""
        end = time.monotonic() + PATIENCE
        while not self.done() and time.monotonic() < end:
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'", [self._pid]
                )
                if cursor.fetchone()[0]:
                    return True
            time.sleep(0.01)
        return False


class Paused(Actor):
    """A thread within an open transaction, which it ends only when it is told to go on."""

    def __init__(self, before: Callable[[], Any], after: Callable[[], Any] = lambda: None) -> None:
        self._reached = threading.Event()
        self._go = threading.Event()

        def work() -> Any:
            with transaction.atomic():
                try:
                    before()
                finally:
                    self._reached.set()
                assert self._go.wait(PATIENCE)
                return after()

        super().__init__(work)
        assert self._reached.wait(PATIENCE)

    def go_on(self) -> Paused:
        """Let it do the rest, commit and end."""
        self._go.set()
        self.join()
        return self


def at_once(works: Sequence[Callable[[], Any]]) -> list[Actor]:
    """Let all begin at the same moment, and wait for all."""
    start = threading.Barrier(len(works))

    def held_back(work: Callable[[], Any]) -> Callable[[], Any]:
        def begin() -> Any:
            start.wait(PATIENCE)
            return work()

        return begin

    return [actor.join() for actor in [Actor(held_back(work)) for work in works]]


def together(*works: Callable[[], Any]) -> list[Any]:
    """What all bring that begin at the same moment. Raises what any of them raises: each has to come through."""
    return [outcome(actor) for actor in at_once(works)]


def outcome(actor: Actor) -> Any:
    """What an actor brings at its end. Raises what it raised."""
    actor.join()
    if actor.error is not None:
        raise actor.error
    return actor.result


def results(actors: Sequence[Actor]) -> list[Any]:
    """What those brought that came through; the others lost."""
    return [actor.result for actor in actors if actor.error is None]


def outcomes(actors: Sequence[Actor]) -> list[Any]:
    """What each returned or raised, in their order."""
    return [actor.result if actor.error is None else actor.error for actor in actors]


def errors(actors: Sequence[Actor]) -> list[type[BaseException]]:
    return [type(actor.error) for actor in actors if actor.error is not None]


@contextmanager
def elapsed() -> Iterator[Callable[[], float]]:
    """How many seconds the block took so far."""
    begun = time.monotonic()
    yield lambda: time.monotonic() - begun
