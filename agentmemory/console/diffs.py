"""Two texts as one, word by word: what went is struck through, what came is underlined."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString

_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
# Above this the comparison could take long; lines are compared instead.
MOST_WORDS = 6000
# Texts that share less than this are shown one after the other: their words would only be shuffled.
ALIKE = 0.4


def words(before: str, after: str) -> SafeString:
    """The difference of two texts as escaped HTML."""
    old, new = _split(before, after)
    matcher = SequenceMatcher(None, old, new)
    if matcher.ratio() < ALIKE:
        return format_html("<del>{}</del> <ins>{}</ins>", before, after)
    return format_html_join("", "{}", ((piece,) for piece in _pieces(matcher, old, new)))


def _split(before: str, after: str) -> tuple[Sequence[str], Sequence[str]]:
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    if max(len(old), len(new)) > MOST_WORDS:
        return before.splitlines(keepends=True), after.splitlines(keepends=True)
    return old, new


def _pieces(matcher: SequenceMatcher[str], old: Sequence[str], new: Sequence[str]) -> Iterator[SafeString]:
    for kind, i1, i2, j1, j2 in matcher.get_opcodes():
        if kind == "equal":
            yield conditional_escape("".join(old[i1:i2]))
            continue
        if i1 < i2:
            yield format_html("<del>{}</del>", "".join(old[i1:i2]))
        if j1 < j2:
            yield format_html("<ins>{}</ins>", "".join(new[j1:j2]))
