"""The statement that ranks rows by the words they hold: the same ranking as if each row had been weighed (M7)."""

from __future__ import annotations

# A term weighs by its rarity among the rows in view (as in BM25; ten unseen rows are assumed, so that in a view of
# few rows no term weighs next to nothing). Of a row, a term counts what `ts_rank` makes of its occurrences by place
# (weights D, C, B, A: context, tags, content, key), mostly for the stem and a little for the word as written, and
# saturates soon, so that covering more terms counts for more than repeating one. Divided by the weight of all terms:
# 0 is nothing, 1 is everything, in the best place. The constants were measured (see `bench/retrieval.py`).
#
# Each row in view is looked at once, for which terms it holds: a bit each. That gives every term's weight, and what all
# rows that hold the same terms can come to at most: MOST times the weight of those. Those that hold the heaviest terms
# are scored (`first`); of all others only those that may come as high as the last of them that is wanted (`rest`).
MOST = 1.5
"""What a term can count at most, however often and wherever it stands; what saturates comes near to it."""

FETCHING = 5
"""Fetching a row by its key takes as long as going through so many."""

_SCORED = """
SELECT id, newest, score, terms
FROM (§view§) AS view (id, newest, search), LATERAL (
    SELECT sum(weight * %(most)s * strength / (strength + 0.5)) AS score, array_agg(n ORDER BY n) AS terms
    FROM weight, LATERAL (SELECT 1.645 * (
        0.8 * ts_rank('{0.3, 0.6, 0.8, 1.0}', search, stem) + 0.2 * ts_rank('{0.3, 0.6, 0.8, 1.0}', search, word)
    ) AS strength) AS place
    WHERE search @@ stem
) AS scored
"""

# Few rows are fetched one by one, many in another walk through all that match: one of the two is done.
_AMONG = f"""
    {_SCORED} WHERE (SELECT coalesce(sum(rows), 0) * {FETCHING} FROM alike WHERE §among§) <= (SELECT n FROM found)
        AND id = ANY(ARRAY(SELECT id FROM hit JOIN alike USING (held) WHERE §among§))
    UNION ALL
    {_SCORED} WHERE (SELECT coalesce(sum(rows), 0) * {FETCHING} FROM alike WHERE §among§) > (SELECT n FROM found)
        AND search @@ %(any_of)s::tsquery AND §held§ = ANY(ARRAY(SELECT held FROM alike WHERE §among§))
"""  # noqa: S608 - made of the constants above
_REST = "NOT heaviest AND %(most)s * weight >= coalesce((SELECT score FROM enough), 0)"

_RANK = f"""
WITH term AS MATERIALIZED (
    SELECT n, 1::bigint << (n - 1)::int AS bit, stem::tsquery AS stem, word::tsquery AS word
    FROM unnest(%(stems)s::text[], %(words)s::text[]) WITH ORDINALITY AS t (stem, word, n)
), hit AS MATERIALIZED (
    SELECT id, §held§ AS held FROM (§view§) AS view (id, newest, search) WHERE search @@ %(any_of)s::tsquery
), counted AS MATERIALIZED (
    SELECT held, count(*) AS rows FROM hit GROUP BY held
), found AS MATERIALIZED (
    SELECT n, CASE WHEN n > 0 THEN (SELECT count(*) FROM (§view§) AS view) ELSE 0 END AS of
    FROM (SELECT coalesce(sum(rows), 0) AS n FROM counted) AS hits
), weight AS MATERIALIZED (
    SELECT term.*, ln(1 + ((SELECT of FROM found) + 10.5 - rows) / (rows + 0.5)) AS weight
    FROM term, LATERAL (SELECT coalesce(sum(rows), 1) AS rows FROM counted WHERE held & bit <> 0) AS at_least_one
), whole AS MATERIALIZED (
    SELECT (SELECT sum(weight) FROM weight) AS weight,
        (SELECT sum(weight) FROM (SELECT weight FROM weight ORDER BY weight DESC LIMIT %(floor_terms)s) AS most) AS most
), weighed AS MATERIALIZED (
    SELECT held, rows, sum(weight) AS weight FROM counted JOIN weight ON held & bit <> 0 GROUP BY held, rows
    HAVING sum(weight) >= %(floor)s * (SELECT most FROM whole)
), alike AS MATERIALIZED (
    SELECT held, rows, weight, coalesce(sum(rows) OVER before < %(limit)s, true) AS heaviest
    FROM weighed WINDOW before AS (ORDER BY weight DESC, held ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
), first AS MATERIALIZED ({_AMONG.replace("§among§", "heaviest")}
), enough AS MATERIALIZED (
    SELECT score * 0.99999 AS score FROM first ORDER BY score DESC OFFSET %(limit)s - 1 LIMIT 1
), rest AS MATERIALIZED ({_AMONG.replace("§among§", _REST)}
)
SELECT id, round((score / (SELECT weight FROM whole))::numeric, 6) AS score, terms
FROM (SELECT * FROM first UNION ALL SELECT * FROM rest) AS scored
ORDER BY score DESC, newest DESC, id DESC
LIMIT %(limit)s
"""  # noqa: S608 - made of the constants above


def statement(view: str, stems: list[str], words: list[str]) -> tuple[str, dict[str, object]]:
    """The statement over a view of (id, newest, search), and its parameters for terms in the syntax of tsquery.

    Besides it takes `any_of`, a tsquery that holds where any term does, `floor`, `floor_terms` and `limit`.
    """
    held = " | ".join(
        f"CASE WHEN search @@ %(stem_{n})s::tsquery THEN {1 << n}::bigint ELSE 0 END" for n in range(len(stems))
    )
    each: dict[str, object] = {f"stem_{n}": stem for n, stem in enumerate(stems)}
    sql = _RANK.replace("§held§", held).replace("§view§", view)
    return sql, {"stems": stems, "words": words, "most": MOST, **each}
