"""Memories as files below `/memories`: paths and keys, and the texts that a model knows from its memory tool."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import unquote

from agentmemory.errors import Invalid

ROOT = "/memories"
DEPTH = 2
"""Levels of folders that a listing shows."""

LISTED = 1_000
"""Lines that a listing may have (A4)."""

_DECODINGS = 3
_NUMBER_WIDTH = 6
_AROUND = 2
"""Lines that are shown before and after a change."""


def key_of(path: str) -> str:
    """The key of the memory, or the beginning of keys, that `path` stands for; empty for the root.

    Raises `Invalid` for a path that leads out of the root, also where it only would if somebody decoded it.
    """
    if path.rstrip("/") == ROOT:
        return ""
    if not path.startswith(ROOT + "/"):
        raise Invalid(f"Path must start with {ROOT}, got: {path}", field="path")
    key = path.removeprefix(ROOT + "/").removesuffix("/")
    if not _confined(key):
        raise Invalid(f"Path {path} would escape {ROOT} directory", field="path")
    if not is_path(key):
        raise Invalid(f"Path {path} has an empty part", field="path")
    return key


def path_of(key: str) -> str:
    return f"{ROOT}/{key}" if key else ROOT


def is_path(key: str) -> bool:
    """Whether a key can be written as a path. Others are memories too, and no files."""
    return _confined(key) and all(part == part.strip() != "" for part in key.split("/"))


def _confined(key: str) -> bool:
    forms = [key, unicodedata.normalize("NFKC", key)]
    for _ in range(_DECODINGS):
        forms += [unicodedata.normalize("NFKC", unquote(form)) for form in forms[-2:]]
    parts = [part for form in forms for part in form.replace("\\", "/").split("/")]
    return "\\" not in key and not {".", ".."}.intersection(parts)


def listing(folder: str, sizes: Iterable[tuple[str, int]]) -> str:
    """What a folder holds, two levels deep. `sizes` are the keys below it, each with its bytes."""
    below = len(folder) + 1 if folder else 0
    totals: dict[str, int] = {}
    for key, size in sizes:
        parts = key[below:].split("/")
        if any(part.startswith(".") for part in parts):
            continue
        totals[""] = totals.get("", 0) + size
        for depth in range(1, min(DEPTH, len(parts)) + 1):
            shown = "/".join(parts[:depth]) + ("/" if depth < len(parts) else "")
            totals[shown] = totals.get(shown, 0) + size
    path = path_of(folder)
    total = totals.pop("", 0)
    lines = [f"{_size(total)}\t{path}", *(f"{_size(totals[name])}\t{path}/{name}" for name in sorted(totals))]
    if len(lines) > LISTED:
        lines = [*lines[:LISTED], f"… and {len(lines) - LISTED:,} more: look into the folders"]
    head = f"Here're the files and directories up to {DEPTH} levels deep in {path}, excluding hidden items:"
    return "\n".join([head, *lines])


def numbered(lines: Sequence[str], *, first: int = 1) -> str:
    """Lines with their numbers before them."""
    return "\n".join(f"{number:>{_NUMBER_WIDTH}}\t{line}" for number, line in enumerate(lines, start=first))


def around(content: str, *, line: int) -> str:
    """The lines about a change on `line`, counted from 0, with their numbers."""
    lines = content.split("\n")
    start = max(0, line - _AROUND)
    return numbered(lines[start : line + _AROUND + 1], first=start + 1)


def occurrences(content: str, words: str) -> Iterator[int]:
    """The line, counted from 0, of each place where `words` stand, those that overlap too."""
    position = content.find(words) if words else -1
    while position >= 0:
        yield content.count("\n", 0, position)
        position = content.find(words, position + 1)


def _size(size: int) -> str:
    """Bytes as `du -h` says them."""
    number, unit = float(size), "B"
    for larger in "KMG":
        if number < 1024:
            break
        number, unit = number / 1024, larger
    return f"{number:.0f}{unit}" if number == int(number) else f"{number:.1f}{unit}"
