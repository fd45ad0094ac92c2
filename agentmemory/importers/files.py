"""The files that a path names: itself, or all below it, in a fixed order, and bounded (A4)."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_FILES = 100_000
MAX_DEPTH = 50


@dataclass(frozen=True, kw_only=True)
class Found:
    """One file. `named`: the caller gave it by name; else it was met in a folder, where anything may lie."""

    path: Path
    named: bool = False


@dataclass(frozen=True, kw_only=True)
class Missed:
    """What could not be looked into, and why. `harmless`: nothing that could have been a file of messages."""

    path: Path
    reason: str
    harmless: bool = False


def walk(path: Path) -> Iterator[Found | Missed]:
    """`path` itself where it is a file, else every file below it, sorted by name.

    Links are followed, each folder is looked into once, so that a loop of links ends. Pipes and devices are not
    opened: they can block for ever.
    """
    count = 0
    for entry in _below(path, named=True, seen=set(), depth=0):
        count += isinstance(entry, Found)
        if count > MAX_FILES:
            yield Missed(path=path, reason=f"more than {MAX_FILES:,} files: the rest was not looked at")
            return
        yield entry


def _below(path: Path, *, named: bool, seen: set[tuple[int, int]], depth: int) -> Iterator[Found | Missed]:
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            yield from _folder(path, (status.st_dev, status.st_ino), seen=seen, depth=depth)
        elif stat.S_ISREG(status.st_mode):
            yield Found(path=path, named=named)
        else:
            yield Missed(path=path, reason="no regular file", harmless=not named)
    except OSError as error:
        dangling = not named and path.is_symlink()
        yield Missed(path=path, reason=f"does not open: {error.strerror or error}", harmless=dangling)


def _folder(
    path: Path, identity: tuple[int, int], *, seen: set[tuple[int, int]], depth: int
) -> Iterator[Found | Missed]:
    if identity in seen:
        return
    seen.add(identity)
    if depth == MAX_DEPTH:
        yield Missed(path=path, reason=f"more than {MAX_DEPTH} folders deep: not looked into")
        return
    for child in sorted(path.iterdir()):
        yield from _below(child, named=False, seen=seen, depth=depth + 1)
