"""When two statements say the same thing, judged by their words alone (pure)."""

from __future__ import annotations

import re

THRESHOLD = 0.82
"""Of the words of both, the share that they must have in common."""

WORD = re.compile(r"\w+(?:['.\-/:@]\w+)*")
ARTICLES = frozenset({"a", "an", "the", "this", "that", "these", "those", "it", "its", "we", "our", "they", "their"})
PREPOSITIONS = frozenset({"of", "for", "in", "on", "at", "to", "with", "by", "and", "as"})
AUXILIARIES = frozenset({"is", "are", "was", "were", "be", "been", "has", "have", "had", "will"})
LITTLE_WORDS = ARTICLES | PREPOSITIONS | AUXILIARIES
NEGATIONS = frozenset(["not", "no", "never", "none", "without", "cannot", "neither", "nor"])
ENDINGS = ("ing", "ed", "es", "s")


def words(text: str) -> frozenset[str]:
    """The words and identifiers of a text, in lower case; `foo_bar.baz` and `ABC-123` stay whole."""
    return frozenset(WORD.findall(text.lower().replace("\u2019", "'")))


def near_duplicate(a: str, b: str) -> bool:
    """Whether two statements repeat each other: nearly the same words, and none that tells them apart.

    One more number or negation, or a word of weight in place of another, makes another statement, however
    many words they share: "runs on port 80" does not repeat "runs on port 81".
    """
    first, second = words(a), words(b)
    if not first or not second:
        return a.strip() == b.strip()
    if len(first & second) < THRESHOLD * len(first | second):
        return False
    only_first, only_second = _weighty(first - second), _weighty(second - first)
    if any(_tells_apart(word) for word in only_first | only_second):
        return False
    return not (only_first - only_second and only_second - only_first)


def _weighty(different: frozenset[str]) -> frozenset[str]:
    return frozenset(_stem(word) for word in different if word not in LITTLE_WORDS)


def _tells_apart(word: str) -> bool:
    return word in NEGATIONS or word.endswith("n't") or any(character.isdigit() for character in word)


def _stem(word: str) -> str:
    for ending in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word
