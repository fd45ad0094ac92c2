"""Where a text holds the words of a query, for the eye. What is found at all, the index says."""

from __future__ import annotations

import re

from agentmemory.search import lexical

SHORT = 4
"""A word of fewer letters begins many others, which have nothing to do with it."""


def pattern(text: str) -> re.Pattern[str] | None:
    """What matches the words of a query in their forms, by how they begin; None where nothing is looked for."""
    wanted = lexical.query(text)
    if wanted is None:
        return None
    begins = sorted({begin for term in wanted.terms for begin in (term.stem, term.word)}, key=len, reverse=True)
    return re.compile("|".join(map(_forms, begins)), re.IGNORECASE)


def excerpt(text: str, marks: re.Pattern[str] | None, *, around: int = 80) -> str:
    """The place where the first of the words stands; without one, how the text begins."""
    found = marks.search(text) if marks else None
    first, last = found.span() if found else (0, 0)
    at = max(0, first - around)
    return ("… " if at else "") + " ".join(text[at : max(last + around, at + 2 * around)].split())


def _forms(begin: str) -> str:
    # In writings without spaces a word has no edge to be told by.
    if not begin.isascii():
        return re.escape(begin)
    return rf"\b{re.escape(begin)}" + (r"\w*" if len(begin) >= SHORT else r"\w{0,3}\b")
