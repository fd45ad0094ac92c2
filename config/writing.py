"""Whether the database takes writes: one that answers reads alone is of no use, and looks well everywhere else.

Asked without writing a row. A read that spills to the database's own disk needs room there as a new row does, and a
transaction number is given to those alone who may write.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from django.db import DatabaseError, connection, transaction

from agentmemory import sqlstates


@dataclass(frozen=True)
class Obstacle:
    """What keeps everything from being written, and what to do about it."""

    line: str
    advice: str

    def __str__(self) -> str:
        return f"{self.line}: {self.advice}"


READ_ONLY = Obstacle(
    "cannot write, the database takes reads alone",
    "let DATABASE_URL name the primary, or turn `default_transaction_read_only` off",
)
# By SQLSTATE.
OBSTACLES = {
    sqlstates.READ_ONLY: READ_ONLY,
    sqlstates.DISK_FULL: Obstacle(
        "cannot write, the disk of the database is full", "free space on it, or give it more"
    ),
    sqlstates.CANCELLED: Obstacle(
        "cannot write, the disk of the database does not answer", "look after it, and the server's log"
    ),
    sqlstates.DISK_FAILS: Obstacle(
        "cannot write, the disk of the database fails", "look after it, and the server's log"
    ),
}
# A server may bound what a read spills. Then it is not known, and nobody is told that writes fail.
BOUNDED = "53400"
# Seconds for which an answer is good: probes come often, and from anybody.
GOOD_FOR = 10.0

# `temp_tablespaces` could name another disk than the rows'. All of it holds for this transaction alone.
_FRUGAL = """
SELECT set_config('work_mem', '64kB', true), set_config('temp_tablespaces', '', true),
    set_config('statement_timeout', '5000', true)
"""
_NUMBER = "SELECT current_setting('transaction_read_only') = 'on', pg_current_xact_id()"
# Some 400 kB of numbers.
_SPILL = "SELECT count(*) FROM generate_series(1, 30000)"

_asking = threading.Lock()
_asked_at: float | None = None
_answer: Obstacle | None = None


def obstacle() -> Obstacle | None:
    """Why nothing can be written; nothing if it can. Raises `DatabaseError` when the database does not answer."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(_FRUGAL)
            cursor.execute(_NUMBER)
            if cursor.fetchone()[0]:
                return READ_ONLY
            cursor.execute(_SPILL)
    except DatabaseError as error:
        state = sqlstates.of(error)
        if state not in OBSTACLES and state != BOUNDED:
            raise
        return OBSTACLES.get(state)
    return None


def lately() -> Obstacle | None:
    """What `obstacle` said within the last seconds. It is asked by one thread of this process at a time; whoever comes
    meanwhile is told what was said last.
    """
    global _answer, _asked_at
    if not _asking.acquire(blocking=False):
        return _answer
    try:
        if _asked_at is None or time.monotonic() - _asked_at > GOOD_FOR:
            _answer = obstacle()
            _asked_at = time.monotonic()
        return _answer
    finally:
        _asking.release()


def forget() -> None:
    """Let the next one who asks be told anew."""
    global _answer, _asked_at
    _answer = _asked_at = None
