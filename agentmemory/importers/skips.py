"""What of a file was not used, reported up to a bound (A4)."""

from __future__ import annotations

from collections.abc import Iterator

from agentmemory.importers import base

MAX_SKIPPED = 1_000
"""Reported one by one; the rest of them as a number."""


class Skips:
    """What was skipped while one file is read, in its order."""

    def __init__(self) -> None:
        self._kept: list[base.Skipped] = []
        self._count = 0

    def add(self, skipped: base.Skipped) -> None:
        self._count += 1
        if self._count <= MAX_SKIPPED:
            self._kept.append(skipped)

    def __iter__(self) -> Iterator[base.Skipped]:
        yield from self._kept
        if self._count > MAX_SKIPPED:
            yield base.Skipped(line=0, reason=f"{self._count - MAX_SKIPPED} more lines")
