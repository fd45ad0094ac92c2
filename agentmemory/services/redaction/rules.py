"""What a detection rule is, and how a set of rules is run over a text in linear time."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

Judge = Callable[[re.Match[str]], bool]


STOPS = r"\u3000-\u3002\u3008-\u3011\uff01\uff08\uff09\uff0c\uff1b"
"""Within a character class: the punctuation of Chinese and Japanese, which ends a value as a blank does."""


def always(match: re.Match[str]) -> bool:
    """The shape alone is enough."""
    return True


class Finder(Protocol):
    """One way to find secrets of one kind."""

    @property
    def kind(self) -> str: ...

    def matches(self, text: str, lowered: str) -> Iterator[re.Match[str]]:
        """The secrets in `text`, in order, without overlap. `lowered` is the text in lower case, equally long."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A shape. `cues` are lower-case literals of which one stands in every text that `pattern` can match: most rules
    are ruled out by them without running the pattern. `judge` has the last word on a match.
    """

    kind: str
    pattern: re.Pattern[str]
    cues: tuple[str, ...]
    judge: Judge = always

    def matches(self, text: str, lowered: str) -> Iterator[re.Match[str]]:
        if any(cue in lowered for cue in self.cues):
            yield from filter(self.judge, self.pattern.finditer(text))


@dataclass(frozen=True, slots=True)
class NamedRule:
    """What follows a name. `names` are lower-case literals, sought as such since that is many times quicker than a
    pattern that ignores case; `before`, if given, has to match right before the name, and `pattern` right after it.
    """

    kind: str
    names: tuple[str, ...]
    pattern: re.Pattern[str]
    judge: Judge
    before: re.Pattern[str] | None = None

    def matches(self, text: str, lowered: str) -> Iterator[re.Match[str]]:
        done = 0
        for start, end in self._places(lowered):
            if start < done or (self.before and not self.before.search(lowered[max(0, start - 40) : start])):
                continue
            match = self.pattern.match(text, end)
            if match and self.judge(match):
                done = match.end()
                yield match

    def _places(self, lowered: str) -> Iterator[tuple[int, int]]:
        """Where the names stand, in order. Lazily: a hostile text holds a million of them."""
        return heapq.merge(*(_occurrences(name, lowered) for name in self.names))


def _occurrences(name: str, lowered: str) -> Iterator[tuple[int, int]]:
    start = lowered.find(name)
    while start >= 0:
        yield start, start + len(name)
        start = lowered.find(name, start + len(name))


def rule(kind: str, pattern: str, *cues: str, judge: Judge = always) -> Rule:
    """A rule from its pattern's source; classes such as `\\w` are those of ASCII."""
    return Rule(kind=kind, pattern=re.compile(pattern, re.ASCII), cues=cues, judge=judge)


def at_edge(literal: str) -> str:
    """A pattern of `literal` where a word may begin: `sk-` yes, the end of `task-` no.

    Word boundaries of the regex engine do not do: they see none between a Chinese character and a letter, and none
    after the `n` of an escaped line end. The look back comes last, so that the engine can seek the literal.
    """
    seen = re.escape(literal)
    back = (
        rf"(?<![A-Za-z0-9_-]{seen})",
        rf"(?<=\\[nrtbf]{seen})",
        rf"(?<=\\u[0-9A-Fa-f]{{4}}{seen})",
        rf"(?<=%[0-9A-Fa-f]{{2}}{seen})",
    )
    return f"{seen}(?:{'|'.join(back)})"


def lower(text: str) -> str:
    """`text` in lower case and equally long; the one letter that grows is replaced."""
    return text.replace("\u0130", "i").lower()


def run(finders: Iterable[Finder], text: str, counts: dict[str, int]) -> str:
    """Replace what each finds, in order, by its marker, and add how many there were to `counts`."""
    lowered = lower(text)
    for finder in finders:
        replaced, found = _replace(finder, text, lowered)
        if found:
            text, lowered = replaced, lower(replaced)
            counts[finder.kind] = counts.get(finder.kind, 0) + found
    return text


def _replace(finder: Finder, text: str, lowered: str) -> tuple[str, int]:
    """What is replaced of a match is its group `secret`, where the pattern has one."""
    pieces: list[str] = []
    done = found = 0
    for match in finder.matches(text, lowered):
        start, end = match.span("secret" if "secret" in match.re.groupindex else 0)
        pieces += [text[done:start], f"[redacted:{finder.kind}]"]
        done = end
        found += 1
    return "".join([*pieces, text[done:]]), found
