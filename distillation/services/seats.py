"""How many threads of one process are at the database at a time.

Many passes wait for their calls side by side, without a connection; when their answers come together, a few at a time
store and apply them. More would not be quicker, and would use up the connections that the server has for everybody.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from django.db import connection

SEATS = 8

_seats = threading.BoundedSemaphore(SEATS)


@contextlib.contextmanager
def taken() -> Iterator[None]:
    """Wait for a seat, and work at the database in it."""
    with _seats:
        yield


@contextlib.contextmanager
def given_up() -> Iterator[None]:
    """Leave the seat, and the connection, for as long as the network is waited for (A2)."""
    if not connection.in_atomic_block:
        connection.close()
    _seats.release()
    try:
        yield
    finally:
        _seats.acquire()
