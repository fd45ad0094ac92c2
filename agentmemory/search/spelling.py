"""Typing errors: words that nothing was found for, replaced by their nearest neighbours among the words in view.

Needs no extension of the database. It looks through the newest rows alone, and only when a search found nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db import connection, models

from agentmemory.search import lexical

ROWS = 2_000
"""Newest rows in view whose words are looked through."""

MAX_WORDS = 8
"""A query of more words is a text, and is not corrected."""

_SHORTEST = 4
_NEIGHBOURS = 3
_WORDS = """
SELECT DISTINCT lexeme
FROM (SELECT search FROM (§view§) AS view (newest, search) ORDER BY newest DESC LIMIT %(rows)s) AS seen,
    unnest(tsvector_to_array(search)) AS lexeme
WHERE length(lexeme) BETWEEN %(shortest)s AND %(longest)s
"""


def corrected(queryset: models.QuerySet[Any], text: str, *, newest: str = "updated_at") -> str:
    """The words in view that are nearest to those of `text`, or nothing where none is near.

    A word of four to seven letters may differ by one slip (a letter too many, too few, another, or two exchanged), a
    longer one by two. Shorter words, numbers and identifiers are never corrected.
    """
    wanted = lexical.query(text)
    words = [term.word for term in wanted.terms if _is_correctable(term.word)] if wanted else []
    if not words or len(words) > MAX_WORDS:
        return ""
    known = _known(queryset, shortest=min(map(len, words)) - 2, longest=max(map(len, words)) + 2, newest=newest)
    return " ".join(neighbour for word in words for neighbour in _nearest(word, known))


def slips(word: str, other: str, *, at_most: int) -> int:
    """How many slips lead from one word to the other; counting ends above `at_most`."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(word, start=1):
        earlier, before, row = before, row, [i]
        for j, its in enumerate(other, start=1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != its))
            if i > 1 and j > 1 and letter == other[j - 2] and word[i - 2] == its:
                cost = min(cost, earlier[j - 2] + 1)
            row.append(cost)
        if min(row) > at_most:
            return at_most + 1
    return row[-1]


def _is_correctable(word: str) -> bool:
    return len(word) >= _SHORTEST and word.isalpha()


def _known(queryset: models.QuerySet[Any], *, shortest: int, longest: int, newest: str) -> list[str]:
    try:
        view, parameters = lexical.with_names(queryset.order_by().values_list(newest, "search"))
    except EmptyResultSet:
        return []
    parameters |= {"rows": ROWS, "shortest": shortest, "longest": longest}
    with connection.cursor() as cursor:
        cursor.execute(_WORDS.replace("§view§", view), parameters)
        return [lexeme for (lexeme,) in cursor.fetchall() if _is_correctable(lexeme)]


def _nearest(word: str, known: Iterable[str]) -> list[str]:
    """The known words with the fewest slips, at most three. They begin or end alike: few slips are at both ends."""
    allowed = 1 if len(word) < 8 else 2
    alike = (
        other
        for other in known
        if abs(len(other) - len(word)) <= allowed and (other[0] == word[0] or other[-2:] == word[-2:])
    )
    near = sorted((slips(word, other, at_most=allowed), other) for other in alike)
    fewest = near[0][0] if near else allowed + 1
    return [other for count, other in near if count == fewest <= allowed][:_NEIGHBOURS]
