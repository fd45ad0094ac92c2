"""The limits of what is kept: trimmed, and refused over the limit, never cut."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from agentmemory.errors import Invalid
from agentmemory.models.memories import CONTENT_LENGTH, CONTEXT_LENGTH, KEY_LENGTH, TAG_COUNT, TAG_LENGTH

RESERVED_KEY_PREFIX = "distilled:"
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
# Control characters and line ends. What only joins or spaces others (in emoji, in many scripts) is printed with them.
_UNPRINTABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})


def storable(value: str) -> bool:
    """Whether the database can hold this text."""
    return _UNSTORABLE.search(value) is None


def key(value: str) -> str:
    """A memory's key, trimmed. Raises `Invalid`."""
    trimmed = text(value, field="key", maximum=KEY_LENGTH)
    if trimmed.startswith(RESERVED_KEY_PREFIX):
        raise Invalid(f"A key may not begin with {RESERVED_KEY_PREFIX!r}.", field="key")
    if any(unicodedata.category(character) in _UNPRINTABLE for character in trimmed):
        raise Invalid("A key is made of printable characters.", field="key")
    return trimmed


def content(value: str) -> str:
    """A memory's content, trimmed. Raises `Invalid`."""
    return text(value, field="content", maximum=CONTENT_LENGTH)


def context(value: str) -> str:
    """A memory's context, trimmed; it may be blank. Raises `Invalid`."""
    return text(value, field="context", maximum=CONTEXT_LENGTH, blank=True)


def tags(values: Sequence[str]) -> list[str]:
    """A memory's tags, trimmed, blank and repeated ones left out. Raises `Invalid`."""
    kept = list(dict.fromkeys(text(value, field="tags", maximum=TAG_LENGTH, blank=True) for value in values))
    kept = [tag for tag in kept if tag]
    if len(kept) > TAG_COUNT:
        raise Invalid(f"At most {TAG_COUNT} tags.", field="tags")
    return kept


def importance(value: float) -> float:
    """A memory's importance, 0 to 1. Raises `Invalid`."""
    if not 0 <= value <= 1:
        raise Invalid("The importance lies between 0 and 1.", field="importance")
    return value


def text(value: str, *, field: str, maximum: int, blank: bool = False) -> str:
    """A text, trimmed. Raises `Invalid` when it is blank, longer than `maximum`, or cannot be stored."""
    if not storable(value):
        raise Invalid("NUL and lone surrogates cannot be kept.", field=field)
    trimmed = value.strip()
    if not trimmed and not blank:
        raise Invalid("It may not be blank.", field=field)
    if len(trimmed) > maximum:
        raise Invalid(f"At most {maximum:,} characters; this has {len(trimmed):,}.", field=field)
    return trimmed
