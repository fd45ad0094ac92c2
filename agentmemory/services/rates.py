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
from django.db.models import F, Q, Sum

from agentmemory import notes
from agentmemory.errors import TooManyCalls
from agentmemory.models import CallWindow

MINUTE = 60
KEPT_MINUTES = 24 * 60
"""For how long it is told how many calls were refused."""
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
    refused: int = 0


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How a token stands to its limit: nothing is no limit. `taken` may be some permits that are not used yet."""

    limit: int | None
    taken: int = 0
    refused: int = 0


_lock = threading.Lock()
_permits: dict[int, _Permits] = {}


def count(token_id: int, own_limit: int | None = None) -> None:
    """Count one call of a token. Raises `TooManyCalls`; after that hardly anything asks the database in this minute.

    `own_limit` is the token's, in place of `AGENTMEMORY_RATE_LIMIT`; 0 counts nothing.
    """
    limit: int = settings.AGENTMEMORY_RATE_LIMIT if own_limit is None else own_limit
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
        raise _refusal(token_id, minute)


def standings(limits: dict[int, int | None]) -> dict[int, Standing]:
    """How tokens stand, given their own limits: permits taken in this minute, and calls refused in the last day."""
    minute = int(time.time() // MINUTE)
    rows = CallWindow.objects.filter(token__in=limits, minute__gte=minute - KEPT_MINUTES).order_by()
    now, over = Sum("taken", filter=Q(minute=minute), default=0), Sum("refused", default=0)
    found = {row["token"]: (row["now"], row["over"]) for row in rows.values("token").annotate(now=now, over=over)}
    return {
        token_id: Standing(
            limit=(settings.AGENTMEMORY_RATE_LIMIT if own is None else own) or None,
            taken=found.get(token_id, (0, 0))[0],
            refused=found.get(token_id, (0, 0))[1],
        )
        for token_id, own in limits.items()
    }


def forget_old() -> int:
    """Delete the windows that are over; those with refused calls a day later. Returns how many there were."""
    minute = int(time.time() // MINUTE)
    over = Q(minute__lt=minute - 1, refused=0) | Q(minute__lt=minute - KEPT_MINUTES)
    return CallWindow.objects.filter(over).delete()[0]


def _dealt(token_id: int, minute: int) -> bool:
    """Whether a permit was there. Raises `TooManyCalls` where it is known that there is none."""
    with _lock:
        permits = _of(token_id, minute)
        if permits.left > 0:
            permits.left -= 1
            return True
        if not permits.exhausted:
            return False
    raise _refusal(token_id, minute)


def _refusal(token_id: int, minute: int) -> TooManyCalls:
    """Note a call that is refused. The number is written when it has doubled: a flood of them is no flood of writes."""
    with _lock:
        permits = _of(token_id, minute)
        permits.refused += 1
        refused = permits.refused
    if refused & (refused - 1) == 0:
        with notes.beside_a_read():
            window = CallWindow.objects.filter(token=token_id, minute=minute)
            window.update(refused=F("refused") + (refused - refused // 2))
    return TooManyCalls(max(1, math.ceil((minute + 1) * MINUTE - time.time())))


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
    """Take a portion; what is left of the minute's calls where that is less.

    Of a database that takes no writes there is nothing to do but read: a portion then counts for this process alone.
    """
    granted = portion = max(1, limit // PORTIONS)
    with notes.beside_a_read(), connection.cursor() as cursor:
        cursor.execute(_TAKE, [token_id, minute, portion, limit])
        row = cursor.fetchone()
        granted = 0 if row is None else min(portion, limit - (row[0] - portion))
    return granted
