"""Work that is done again and again, and the ticker that does what must be quicker than the queue's schedules."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.db import DatabaseError, close_old_connections, connection

from agentmemory import sqlstates
from sessions_exec.services import ticks

logger = logging.getLogger(__name__)

_reads_alone = False


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Regular work as a task: `function` by its dotted name, every so many seconds, in whole minutes.

    `what` says to operators what it does.
    """

    name: str
    what: str
    function: str
    every: float

    @property
    def minutes(self) -> int:
        return max(1, int(self.every // 60))


@dataclass(frozen=True, kw_only=True)
class Tick:
    """Regular work done in the supervisor itself, quick and without a model: what it returns is noted."""

    name: str
    what: str
    every: float
    function: Callable[[], object]


def run(regulars: Sequence[Tick], *, stop: threading.Event) -> None:
    """Do each when its time has come, until `stop`. Over all workers together each is done once in its time."""
    due = {each.name: 0.0 for each in regulars}
    pause = min([0.5, *(each.every / 4 for each in regulars)])
    while not stop.wait(pause):
        for each in regulars:
            if not stop.is_set() and time.monotonic() >= due[each.name]:
                due[each.name] = time.monotonic() + each.every
                do(each)
    connection.close()


def do(each: Tick) -> None:
    """Do one if it is its turn. What goes wrong with one does not stop the others."""
    try:
        if ticks.claim(each.name, every=each.every):
            ticks.note(each.name, each.function())
        _tell_writes(refused=False)
    except Exception as error:
        if takes_reads_alone(error):
            _tell_writes(refused=True)
        else:
            logger.exception("regular work failed", extra={"action": "tick.failed", "tick": each.name})
        connection.close()
    finally:
        close_old_connections()


def takes_reads_alone(error: Exception) -> bool:
    """Whether it is a write that the database has refused since it takes none at all."""
    return isinstance(error, DatabaseError) and sqlstates.of(error) == sqlstates.READ_ONLY


def _tell_writes(*, refused: bool) -> None:
    """Say once that nothing can be written, and once that it can again: every tick would find it anew."""
    global _reads_alone
    if refused and not _reads_alone:
        logger.error("the database takes reads alone: regular work waits", extra={"action": "tick.reads_alone"})
    elif _reads_alone and not refused:
        logger.info("the database takes writes again", extra={"action": "tick.writes_again"})
    _reads_alone = refused
