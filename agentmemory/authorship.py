"""Who writes, and why: carried to the database, so that its triggers know and its history tells (M2, M5)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pghistory
from django.db import connection, transaction


@dataclass(frozen=True, kw_only=True)
class Author:
    """One who writes. `kind` is `agent`, `operator`, `space` (a space token), `pass` or `system`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


SYSTEM = Author(kind="system", name="upkeep")
CONSOLIDATION = Author(kind="system", name="consolidation")


# What triggers read, for the open transaction alone.
_SETTINGS = ("agentmemory.author", "pghistory.context_metadata")


@contextmanager
def acting(author: Author, *, reason: str = "") -> Iterator[None]:
    """Let `author` write, and nobody else with it: one within another speaks for itself, then the other again.

    Only a person or an agent may touch curated memories. What fails in the block is undone up to the nearest
    savepoint around it, or else with the whole transaction: no write can follow it under a name that is not its own.
    """
    with transaction.atomic(savepoint=False), pghistory.context() as told:
        before, outer = _read(), dict(told.metadata)
        told.metadata.update(author=str(author), reason=reason)
        _write([str(author), before[1]])
        try:
            yield
        finally:
            told.metadata.clear()
            told.metadata.update(outer)
        _write(before)


def _read() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting(%s, true), current_setting(%s, true)", _SETTINGS)
        return [value or "" for value in cursor.fetchone()]


def _write(values: list[str]) -> None:
    pairs = [each for pair in zip(_SETTINGS, values, strict=True) for each in pair]
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config(%s, %s, true), set_config(%s, %s, true)", pairs)


@contextmanager
def purging() -> Iterator[None]:
    """Let the open transaction erase, in the history too: for a purge and for redaction, and nothing else (M5).

    As with `acting`, what fails in the block takes the right away with it.
    """
    with transaction.atomic(savepoint=False):
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('agentmemory.purge', 'on', true)")
        yield
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('agentmemory.purge', '', true)")
