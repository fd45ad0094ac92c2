"""Waiting for events without a database connection: one thread looks for all who wait in this process.

It looks at the numbers of the sessions' newest events, a state and not a message: whoever begins to wait after
something came is told at the first look, so that no wake-up can be lost.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field

from django.db import DatabaseError, connection

from agentmemory.models import Session
from sessions_exec.errors import Crowded
from sessions_exec.models import EventCounter

logger = logging.getLogger(__name__)

MOST_WAITING = 200
LONGEST = 30.0
LOOK = 0.2
# How often a waiting call looks whether its process is about to end.
SLICE = 0.5


@dataclass(eq=False)
class _Waiter:
    session_id: int
    after: int
    woken: threading.Event = field(default_factory=threading.Event)


_lock = threading.Lock()
_waiters: set[_Waiter] = set()
_stopped = threading.Event()
_looking = False


def wait(*, session: Session, after: int, seconds: float) -> None:
    """Return once the session has an event above `after`, is gone, or `seconds` (at most 30) have passed.

    The caller's database connection is given back meanwhile, unless a transaction is open on it. Raises `Crowded`
    where too many wait already.
    """
    waiter = _Waiter(session.pk, after)
    _enter(waiter)
    try:
        if not connection.in_atomic_block:
            connection.close()
        end = time.monotonic() + min(seconds, LONGEST)
        while not _ending() and (left := end - time.monotonic()) > 0 and not waiter.woken.wait(min(left, SLICE)):
            pass
    finally:
        with _lock:
            _waiters.discard(waiter)


def stop() -> None:
    """Let everyone return at once, now and from now on: the process is about to end."""
    _stopped.set()
    _give_up()


def _ending() -> bool:
    return _stopped.is_set() or not threading.main_thread().is_alive()


def _enter(waiter: _Waiter) -> None:
    global _looking
    with _lock:
        if len(_waiters) >= MOST_WAITING:
            raise Crowded(f"{MOST_WAITING} calls wait already.")
        _waiters.add(waiter)
        if not _looking:
            _looking = True
            threading.Thread(target=_look_for_all, name="events", daemon=True).start()


def _look_for_all() -> None:
    """Look until nobody waits. A look that fails is the last one: who waits looks for itself, and sees why."""
    try:
        while waiting := _still_waiting():
            _look(waiting)
            time.sleep(LOOK)
    except BaseException as error:
        _give_up()
        if not isinstance(error, DatabaseError):
            raise
        logger.exception("cannot look for events", extra={"action": "events.failed"})
    finally:
        connection.close()


def _still_waiting() -> list[_Waiter]:
    """Those who wait; where there are none the thread ends, and the next one who waits starts another."""
    global _looking
    with _lock:
        _looking = bool(_waiters) and not _ending()
        return list(_waiters) if _looking else []


def _give_up() -> None:
    """Let everyone return who waits now, and whoever waits next start a thread again."""
    global _looking
    with _lock:
        _looking = False
        for waiter in _waiters:
            waiter.woken.set()


def _look(waiting: list[_Waiter]) -> None:
    ids = {waiter.session_id for waiter in waiting}
    newest = dict(EventCounter.objects.filter(session_id__in=ids).values_list("session_id", "last_seq"))
    silent = ids - newest.keys()
    standing = set(Session.objects.filter(pk__in=silent).values_list("pk", flat=True)) if silent else set()
    for waiter in waiting:
        gone = waiter.session_id in silent - standing
        if gone or newest.get(waiter.session_id, 0) > waiter.after:
            waiter.woken.set()
