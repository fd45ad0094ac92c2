"""Secrets and unstorable characters are replaced at the door, before anything is stored (D13, R3).

The patterns are our own. The detectors on offer are made for scanning files before a commit: they work line by line,
so that a private key of many lines is only seen by its first, they report that something was found rather than where
it begins and ends, they hold their set-up in global state, and they look for word boundaries that do not exist beside
Chinese or Japanese text. What is needed here is a replacement of exact spans in linear time, whatever the text.

False alarms cost, too: what was said is lost. A rule therefore needs either an unmistakable shape (`tokens`), an
unmistakable place (`places`), or a telling name with a value that looks generated (`assignments`, `values`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agentmemory import errors
from agentmemory.services.redaction import assignments, places, tokens
from agentmemory.services.redaction.rules import run

MAX_DEPTH = 100
"""Lists and objects within each other, at most: beyond it neither the database nor JSON itself is reliable (A4)."""

REPLACEMENT = "�"
RULES = (*places.RULES, *tokens.RULES, *assignments.RULES)

# A replacement may bring to light what stood right beside it. Bounded, though two rounds have always been enough.
_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Redacted:
    """A value fit for storing, and how many of each kind were replaced in it (`nul` and `surrogate` included)."""

    value: Any
    counts: dict[str, int]


def clean_text(text: str) -> str:
    """`text` with NUL and lone surrogates replaced by U+FFFD (R3): PostgreSQL and UTF-8 can hold neither."""
    return _clean(text, {})


def redact(value: object) -> Redacted:
    """Replace every secret in a string or in JSON (values and keys) by `[redacted:KIND]`, and clean its text.

    Redacting again changes nothing. Numbers, truth values and null are kept as they are. Raises `errors.Invalid`
    for JSON nested deeper than `MAX_DEPTH`.
    """
    counts: dict[str, int] = {}
    return Redacted(value=_walk(value, counts, 0), counts=counts)


def secret_kinds(text: str) -> tuple[str, ...]:
    """The kinds of secrets in `text`, sorted, for refusing a memory (D13). Unstorable characters are not secrets."""
    counts: dict[str, int] = {}
    run(RULES, _clean(text, {}), counts)
    return tuple(sorted(counts))


def _walk(value: object, counts: dict[str, int], depth: int) -> object:
    if isinstance(value, str):
        return _text(value, counts)
    if not isinstance(value, (dict, list, tuple)):
        return value
    if depth >= MAX_DEPTH:
        raise errors.Invalid(f"The content is nested deeper than {MAX_DEPTH} levels.", field="content")
    if isinstance(value, dict):
        return _object(value, counts, depth + 1)
    return [_walk(item, counts, depth + 1) for item in value]


def _object(value: dict[Any, Any], counts: dict[str, int], depth: int) -> dict[str, object]:
    """An object, its keys cleaned as well. Two keys that become the same both stay, the later one numbered."""
    result: dict[str, object] = {}
    for raw_name, item in value.items():
        name = _unused(_text(str(raw_name), counts), result)
        kind = assignments.kind_by_name(str(raw_name), item) if isinstance(item, str) else None
        if kind:
            counts[kind] = counts.get(kind, 0) + 1
            result[name] = f"[redacted:{kind}]"
        else:
            result[name] = _walk(item, counts, depth)
    return result


def _unused(name: str, taken: dict[str, object]) -> str:
    number = 1
    candidate = name
    while candidate in taken:
        number += 1
        candidate = f"{name} ({number})"
    return candidate


def _text(text: str, counts: dict[str, int]) -> str:
    text = _clean(text, counts)
    for _ in range(_ROUNDS):
        before, text = text, run(RULES, text, counts)
        if text == before:
            break
    return text


def _clean(text: str, counts: dict[str, int]) -> str:
    if "\0" in text:
        counts["nul"] = counts.get("nul", 0) + text.count("\0")
        text = text.replace("\0", REPLACEMENT)
    try:
        text.encode()
    except UnicodeEncodeError:
        lone = sum("\ud800" <= character <= "\udfff" for character in text)
        counts["surrogate"] = counts.get("surrogate", 0) + lone
        text = "".join(REPLACEMENT if "\ud800" <= character <= "\udfff" else character for character in text)
    return text
