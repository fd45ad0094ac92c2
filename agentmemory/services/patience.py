"""How long somebody waits for an answer of the database: a statement that takes longer is ended by the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import OperationalError, connection, transaction

from agentmemory import sqlstates


class TookTooLong(Exception):
    """A statement was ended, and what was begun in the block with it."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Each statement within takes so long at most, else `TookTooLong` is raised. The block is one transaction."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('statement_timeout')")
            before = cursor.fetchone()[0]
            _limit(f"{max(1, int(seconds * 1000))}ms")
            yield
            # What is set in an inner transaction holds for the outer one as well, unless it is taken back.
            _limit(before)
    except OperationalError as error:
        if sqlstates.of(error) != sqlstates.CANCELLED:
            raise
        raise TookTooLong from error


def _limit(value: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [value])
