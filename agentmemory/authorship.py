"""Who writes, and why: carried to the database, so that its triggers know and its history tells (M2, M5)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pghistory
from django.db import connection


@dataclass(frozen=True, kw_only=True)
class Author:
    """One who writes. `kind` is `agent`, `operator`, `space` (a space token), `pass` or `system`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


SYSTEM = Author(kind="system", name="upkeep")


@contextmanager
def acting(author: Author, *, reason: str = "") -> Iterator[None]:
    """Let `author` write within the open transaction. Only a person or an agent may touch curated memories."""
    with pghistory.context(author=str(author), reason=reason):
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('agentmemory.author', true)")
            before = cursor.fetchone()[0] or ""
            cursor.execute("SELECT set_config('agentmemory.author', %s, true)", [str(author)])
        yield
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('agentmemory.author', %s, true)", [before])


@contextmanager
def purging() -> Iterator[None]:
    """Let the open transaction erase, in the history too: for a purge and for redaction, and nothing else (M5)."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('agentmemory.purge', 'on', true)")
    yield
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('agentmemory.purge', '', true)")
