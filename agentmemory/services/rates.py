"""How many calls a token may make in a minute, over all processes together.

A process takes permits in portions, with one statement, and deals them out by itself: no row is written a call, and
none is hot. What a process took and did not use when the minute ends is lost, so the limit is never passed, and may be
met a few portions early.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass

from django.conf import settings
from django.db import connection

from agentmemory.errors import TooManyCalls
from agentmemory.models import CallWindow

MINUTE = 60
PORTIONS = 50
"""Portions that a minute's calls are taken in."""

_TAKE = """
INSERT INTO agentmemory_callwindow AS kept (token_id, minute, taken) VALUES (%s, %s, %s)
ON CONFLICT (token_id, minute) DO UPDATE SET taken = kept.taken + excluded.taken WHERE kept.taken < %s
RETURNING taken
"""


@dataclass
class _Permits:
    minute: int
    left: int
    exhausted: bool = False


_lock = threading.Lock()
_permits: dict[int, _Permits] = {}


def count(token_id: int) -> None:
    """Count one call of a token. Raises `TooManyCalls`; after that nothing asks the database until the minute is over.

    `AGENTMEMORY_RATE_LIMIT` 0 counts nothing.
    """
    limit: int = settings.AGENTMEMORY_RATE_LIMIT
    if not limit:
        return
    now = time.time()
    minute = int(now // MINUTE)
    if _dealt(token_id, minute):
        return
    granted = _take(token_id, minute, limit)
    with _lock:
        permits = _of(token_id, minute)
        permits.left += granted
        permits.exhausted = granted == 0
    if not _dealt(token_id, minute):
        raise TooManyCalls(max(1, math.ceil((minute + 1) * MINUTE - now)))


def forget_old() -> int:
    """Delete the windows that are over. Returns how many there were."""
    return CallWindow.objects.filter(minute__lt=int(time.time() // MINUTE) - 1).delete()[0]


def _dealt(token_id: int, minute: int) -> bool:
    """Whether a permit was there. Raises `TooManyCalls` where it is known that there is none."""
    with _lock:
        permits = _of(token_id, minute)
        if permits.left > 0:
            permits.left -= 1
            return True
        if permits.exhausted:
            raise TooManyCalls(max(1, math.ceil((minute + 1) * MINUTE - time.time())))
        return False


def _of(token_id: int, minute: int) -> _Permits:
    permits = _permits.get(token_id)
    if permits is None or permits.minute != minute:
        # Those of minutes that are over are let go, so that there are never more than tokens at work (A4).
        if permits is None and len(_permits) > 1_000:
            for other in [key for key, kept in _permits.items() if kept.minute != minute]:
                del _permits[other]
        permits = _permits[token_id] = _Permits(minute=minute, left=0)
    return permits


def _take(token_id: int, minute: int, limit: int) -> int:
    """Take a portion; what is left of the minute's calls where that is less."""
    portion = max(1, limit // PORTIONS)
    with connection.cursor() as cursor:
        cursor.execute(_TAKE, [token_id, minute, portion, limit])
        row = cursor.fetchone()
    return 0 if row is None else min(portion, limit - (row[0] - portion))
