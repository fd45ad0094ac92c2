"""The lexical leg: words of a query against the words of rows that carry a tsvector `search` (M7, M10).

Both sides are taken apart by the same function of the database (`agentmemory_words`), so they cannot disagree.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib.postgres.search import SearchQuery
from django.core.exceptions import EmptyResultSet
from django.db import connection, models

from agentmemory.querysets import narrowing
from agentmemory.search import weighing

QUERY_LENGTH = 24_000
"""Characters of a query that are looked at: a whole prompt, or a window of a transcript, may be asked with."""

MAX_TERMS = 32
"""Terms of a query that are looked for; of more, those said most often, then those said first."""

FLOOR = 0.1
"""What a row matches must weigh this share of the query's heaviest terms, or it is not found at all."""

IN_VIEW = "ABC"
"""A memory's key, content and tags, what a message says itself. D is the context, which is never shown."""

_FLOOR_TERMS = 6
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True)
class Term:
    """One thing to look for: `stem` makes a row match, `word` as it was written makes it match better."""

    word: str
    stem: str
    prefix: bool = False

    @property
    def stem_query(self) -> str:
        return quoted(self.stem) + (":*" if self.prefix else "")

    def stem_query_in(self, places: str) -> str:
        """The same in some places of a row alone, by the letters that they have in its vector."""
        return f"{quoted(self.stem)}:{'*' if self.prefix else ''}{places}"

    @property
    def word_query(self) -> str:
        return quoted(self.word) + (":*" if self.prefix else "")


@dataclass(frozen=True)
class LexicalQuery:
    """The distinct terms of a query, in its order, at least one."""

    terms: tuple[Term, ...]

    @property
    def any_of(self) -> str:
        """A tsquery that holds where any term does."""
        return " | ".join(term.stem_query for term in self.terms)

    @property
    def all_of(self) -> str:
        """A tsquery that holds where every term does."""
        return " & ".join(term.stem_query for term in self.terms)

    @property
    def all_in_view(self) -> str:
        """A tsquery that holds where every term stands in what is shown of a row."""
        return " & ".join(term.stem_query_in(IN_VIEW) for term in self.terms)


@dataclass(frozen=True)
class Hit:
    """A row found: `score` from 0 to 1, `rank` from 1, the words of the query that it holds."""

    pk: Any
    score: float
    rank: int
    words: tuple[str, ...]

    @property
    def memory_id(self) -> UUID:
        """The row's id, where the rows are memories."""
        pk: UUID = self.pk
        return pk


def quoted(lexeme: str) -> str:
    """One lexeme in the syntax of tsquery; nothing within can be read as an operator."""
    escaped = lexeme.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def query(text: str) -> LexicalQuery | None:
    """What to look for, or None where nothing is: stop words alone match nothing rather than everything."""
    text = _UNSTORABLE.sub(" ", text[:QUERY_LENGTH])
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT place, kind, word, stem FROM agentmemory_words(%s) WHERE stem IS NOT NULL"
            " ORDER BY place, kind = 'part', word",
            [text],
        )
        found = cursor.fetchall()
    # In a query that is written in capitals throughout, capitals do not tell a name from a stop word.
    shouted = text.isupper() and len(text.split()) > 1
    pairs_at = {place for place, kind, _, _ in found if kind == "pair"}
    terms: dict[str, Term] = {}
    said: Counter[str] = Counter()
    for place, kind, word, stem in found:
        is_single = kind == "last"
        if (kind == "capitals" and shouted) or (is_single and place in pairs_at) or _is_crumb(kind, word):
            continue
        terms.setdefault(stem, Term(word=word, stem=stem, prefix=is_single))
        said[stem] += 1
    return LexicalQuery(tuple(terms[stem] for stem, _ in said.most_common(MAX_TERMS))) if terms else None


def _is_crumb(kind: str, word: str) -> bool:
    """Whether it is too small a part of an identifier to say anything by itself: the 5 of 5.2.19, the v before it."""
    return kind == "part" and (len(word) == 1 or (len(word) == 2 and word.isdigit()))


def rank(queryset: models.QuerySet[Any], text: str, *, limit: int, newest: str = "updated_at") -> list[Hit]:
    """The rows of `queryset` that match `text` best, at most `limit`; of equals, the one with the greater `newest`.

    Nothing is filtered afterwards: the queryset must be what the caller may see, and how often a word occurs is
    counted within it alone, so that no score tells of rows out of view (M4).
    """
    wanted = query(text)
    if wanted is None:
        return []
    try:
        view, parameters = with_names(queryset.order_by().values_list("pk", newest, "search"))
    except EmptyResultSet:
        return []
    stems, words = ([getattr(term, name) for term in wanted.terms] for name in ("stem_query", "word_query"))
    statement, terms = weighing.statement(view, stems, words)
    parameters |= terms | {"any_of": wanted.any_of, "floor": FLOOR, "floor_terms": _FLOOR_TERMS, "limit": limit}
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return list(_hits(cursor.fetchall(), wanted))


class _Wanted(SearchQuery):
    """A tsquery that is one already: nothing in it is taken apart again."""

    template = "%(expressions)s::tsquery"


def holding(
    rows: models.QuerySet[Any], text: str, *, search: str = "search", in_view: bool = False
) -> models.QuerySet[Any]:
    """Those of `rows` that hold all words of `text`, not ranked: their list keeps its own order.

    `in_view`: only such as hold them in what is shown of them, and not in their context.
    """
    wanted = query(text)
    if wanted is None:
        return rows.none()
    matching = {search: _Wanted(wanted.all_in_view if in_view else wanted.all_of)}
    few = list(rows.model._default_manager.filter(**matching).values_list("pk", flat=True)[: narrowing.FEW + 1])
    return rows.filter(pk__in=few) if len(few) <= narrowing.FEW else rows.filter(**matching)


def is_in_view(text: str) -> Any:
    """Whether a row that holds all words of `text` holds them in what is shown of it: for `annotate`."""
    wanted = query(text)
    if wanted is None:
        return models.Value(True)
    return models.ExpressionWrapper(models.Q(search=_Wanted(wanted.all_in_view)), output_field=models.BooleanField())


def with_names(queryset: models.QuerySet[Any, Any]) -> tuple[str, dict[str, Any]]:
    """The queryset's SQL with named parameters, so that it can stand twice in a statement."""
    sql, values = queryset.query.sql_with_params()
    names = [f"view_{n}" for n in range(len(values))]
    return sql.replace("%%", "%%%%") % tuple(f"%({name})s" for name in names), dict(zip(names, values, strict=True))


def _hits(rows: Iterable[tuple[Any, Any, list[int]]], wanted: LexicalQuery) -> Iterable[Hit]:
    for position, (pk, score, numbers) in enumerate(rows, start=1):
        yield Hit(pk, min(float(score), 1.0), position, tuple(wanted.terms[n - 1].word for n in numbers))
