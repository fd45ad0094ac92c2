"""The tests' database as a standby is: it answers, and takes no writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection


@contextmanager
def reads_alone() -> Iterator[None]:
    """For the length of a block, of this test's own connection."""
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
        try:
            yield
        finally:
            cursor.execute("SET default_transaction_read_only = off")
