"""Notes that are taken beside a read: when a token was used, how often, and what was read.

A database that takes no writes (a standby, a full disk) keeps none of them, and the read goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import InternalError, OperationalError

from agentmemory import sqlstates


@contextmanager
def beside_a_read() -> Iterator[None]:
    """Write what is noted within, or leave it out where the database takes no writes now. Other errors are raised.

    Within a transaction that is to go on, a note has a savepoint of its own.
    """
    try:
        yield
    except (InternalError, OperationalError) as error:
        if sqlstates.of(error) not in (sqlstates.DISK_FULL, sqlstates.READ_ONLY):
            raise
