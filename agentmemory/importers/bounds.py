"""What a transcript may hold: as it came, but no string, list or depth without an end (A4)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime

from agentmemory.importers import base

MAX_TEXT = 200_000
"""Characters of a text that people read."""

MAX_STRING = 20_000
"""Characters of any other string: outputs and inputs of tools, pictures, signatures."""

MAX_ITEMS = 1_000
"""Entries of a list or an object."""

MAX_DEPTH = 30

_YEARS = range(1970, 3000)
_MILLISECONDS_FROM = 100_000_000_000  # of them: in 1973; of seconds: in the year 5138
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def content(value: str | list[object]) -> base.Content:
    """`value` with what is beyond the bounds cut away and marked `…[n more]`; else unchanged.

    A block depends on itself alone, so that a message that grows keeps the blocks it had.
    """
    if isinstance(value, str):
        return _cut(value, MAX_TEXT)
    blocks = [_block(block) for block in value[:MAX_ITEMS]]
    return [*blocks, {"type": "cut", "more": len(value) - MAX_ITEMS}] if len(value) > MAX_ITEMS else blocks


def _block(block: object) -> object:
    if isinstance(block, str):
        return _cut(block, MAX_TEXT)
    if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str):
        return {**_mapping(block, depth=1), "text": _cut(block["text"], MAX_TEXT)}
    return _bounded(block, depth=0)


def _bounded(value: object, *, depth: int) -> object:
    if isinstance(value, str):
        return _cut(value, MAX_STRING)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if not isinstance(value, dict | list):
        return value
    if depth >= MAX_DEPTH:
        return "…[nested deeper]"
    if isinstance(value, dict):
        return _mapping(value, depth=depth + 1)
    kept = [_bounded(item, depth=depth + 1) for item in value[:MAX_ITEMS]]
    return [*kept, f"…[{len(value) - MAX_ITEMS} more]"] if len(value) > MAX_ITEMS else kept


def _mapping(value: Mapping[str, object], *, depth: int) -> dict[str, object]:
    kept = list(value.items())[:MAX_ITEMS]
    return {_cut(key, MAX_STRING): _bounded(item, depth=depth) for key, item in kept}


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…[{len(text) - limit} more]"


def line(value: object, *, limit: int) -> str:
    """A short text for people, from anything: its first line that says something, storable, at most `limit` long."""
    if not isinstance(value, str):
        return ""
    first = next((part.strip() for part in value[: 20 * limit].splitlines() if part.strip()), "")
    storable = _UNSTORABLE.sub("\ufffd", first)
    return storable if len(storable) <= limit else storable[: limit - 1].rstrip() + "…"


def moment(value: object) -> datetime | None:
    """A time in ISO 8601, as UTC; one without a zone is taken for UTC. None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        read = datetime.fromisoformat(value)
        aware = read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return aware if aware.year in _YEARS else None


def epoch(value: object) -> datetime | None:
    """A time as a number since 1970, as UTC: of milliseconds, or of seconds where it is too small for them."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        read = datetime.fromtimestamp(value / 1000 if abs(value) >= _MILLISECONDS_FROM else value, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return read if read.year in _YEARS else None
