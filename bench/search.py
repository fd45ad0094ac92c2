"""How long a search takes, beside the bare SQL of the same plans.

    python -m bench.search [--sizes 1000 100000] [--asked 40]

For each size so many memories are put into a database of its own, one tenth of them of the asking agent, the others of
nine more in its space. It asks twice: for its own, and, with the space's token, for everyone's. Rows are copies of a
few thousand that differ, with vectors by chance: what is measured is work, not what is found. Beside the whole search,
as the JSON view calls it, stands the time of two bare statements: the words by `ts_rank`, the vectors by distance.
The time of the model that makes a query's vector is apart from that, because it is the same for every size.
"""

# ruff: noqa: S311, S608, T201 - chance is enough here, statements are made of what stands here, and it prints
from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from bench import throwaway

if TYPE_CHECKING:
    from agentmemory.callers import Caller
    from agentmemory.models import Agent, Space

ORIGINALS = 5_000
AGENTS = 10
VOCABULARY = 20_000
WORDS = 40
DIMENSIONS = 384

_COPY = """
INSERT INTO agentmemory_memory (id, space_id, owner_id, origin, key, content, tags, context, importance, pinned,
    version, created_by, created_at, updated_at, withdrawn_by, withdrawn_reason, edited_by, search)
SELECT gen_random_uuid(), space_id, (%(agents)s::bigint[])[1 + n %% {agents}], 'distilled', key || '-copy-' || n,
    content, tags, context, importance, pinned, version, created_by, created_at, updated_at + n * interval '1 second',
    '', '', '', search
FROM (SELECT row_number() OVER () - 1 AS at, * FROM agentmemory_memory WHERE key LIKE 'original%%') AS original
JOIN generate_series(1, %(copies)s) AS n ON n %% {originals} = at
"""
_VECTORS = """
INSERT INTO agentmemory_memoryvector (row_id, model, vector)
SELECT id, %(model)s, (%(vectors)s::text[])[1 + (row_number() OVER ()) %% %(kinds)s]::vector FROM agentmemory_memory
"""


class Chance:
    """An embedder that knows nothing and takes no time; everything is near enough for it."""

    name, dimensions, floor = "chance", DIMENSIONS, -1.0

    def embed(self, texts: Sequence[str]) -> list[list[float] | None]:
        return [_unit(random.Random(text)) for text in texts]


def _unit(chance: random.Random) -> list[float]:
    numbers = [chance.gauss(0, 1) for _ in range(DIMENSIONS)]
    length = math.sqrt(sum(number * number for number in numbers))
    return [number / length for number in numbers]


def words(chance: random.Random, count: int) -> str:
    """Words as often as they are in a language: few are frequent."""
    return " ".join(f"w{_letters(int(VOCABULARY ** chance.random()))}" for _ in range(count))


def _letters(number: int) -> str:
    return chr(97 + number % 26) + (_letters(number // 26) if number >= 26 else "")


def originals(count: int, chance: random.Random) -> tuple[Space, list[Agent]]:
    """A space with its agents, and memories that differ, to be copied."""
    from agentmemory.models import Agent, Memory, Space

    space = Space.objects.create(slug=f"bench-{count}")
    agents = [Agent.objects.create(space=space, handle=f"agent-{n}") for n in range(AGENTS)]
    Memory.objects.bulk_create(
        Memory(
            space=space,
            owner=agents[n % AGENTS],
            origin="distilled",
            created_by="bench",
            key=f"original-{n}",
            content=words(chance, WORDS),
        )
        for n in range(count)
    )
    return space, agents


def fill(size: int) -> tuple[Caller, Caller]:
    """The asking agent, and the token of its space; `size` memories with vectors."""
    from django.db import connection

    from agentmemory.callers import Caller
    from agentmemory.search import embeddings

    chance = random.Random(size)
    space, agents = originals(min(size, ORIGINALS), chance)
    vectors = [embeddings.written(_unit(chance)) for _ in range(500)]
    with connection.cursor() as cursor:
        # Copies need no trigger: their words are taken apart already.
        cursor.execute("SET session_replication_role = replica")
        if size > ORIGINALS:
            statement = _COPY.format(agents=AGENTS, originals=ORIGINALS)
            cursor.execute(statement, {"agents": [agent.pk for agent in agents], "copies": size - ORIGINALS})
        cursor.execute("TRUNCATE agentmemory_memoryvector")
        model = embeddings.model(Chance())
        cursor.execute(_VECTORS, {"model": model, "vectors": vectors, "kinds": len(vectors)})
        cursor.execute("SET session_replication_role = origin")
        cursor.execute("VACUUM ANALYZE agentmemory_memory, agentmemory_memoryvector")
    return Caller(space=space, agent=agents[0]), Caller(space=space)


def searched(caller: Caller) -> Callable[[str], object]:
    from agentmemory.search import ranking

    scope: Any = None if caller.agent else "all"
    return lambda q: ranking.search(caller=caller, q=q, scope=scope)


def bare_words(caller: Caller) -> Callable[[str], object]:
    view = _view(caller)

    def ask(q: str) -> object:
        wanted = " | ".join(f"'{word}'" for word in q.split())
        return _rows(
            f"SELECT id FROM agentmemory_memory AS m WHERE {view} AND search @@ %s::tsquery"
            " ORDER BY ts_rank(search, %s::tsquery) DESC, updated_at DESC LIMIT 10",
            [wanted, wanted],
        )

    return ask


def bare_vectors(caller: Caller) -> Callable[[str], object]:
    view = _view(caller)

    def ask(q: str) -> object:
        from agentmemory.search import embeddings

        return _rows(
            f"SELECT id FROM agentmemory_memory AS m JOIN agentmemory_memoryvector ON row_id = id WHERE {view}"
            " ORDER BY vector <=> %s::vector LIMIT 10",
            [embeddings.of_query(Chance(), q)],
        )

    return ask


def _view(caller: Caller) -> str:
    whose = f"(m.owner_id = {caller.agent.pk} OR m.owner_id IS NULL)" if caller.agent else "true"
    live = "m.deleted_at IS NULL AND m.withdrawn_at IS NULL AND (m.expires_at IS NULL OR m.expires_at > now())"
    return f"m.space_id = {caller.space.pk} AND {whose} AND {live}"


def _rows(statement: str, values: Iterable[Any]) -> list[Any]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement, list(values))
        return list(cursor.fetchall())


def timed(ask: Callable[[str], object], queries: Sequence[str]) -> str:
    """Median and 95th percentile in milliseconds."""
    ask(queries[0])
    spent = []
    for q in queries:
        begun = time.perf_counter()
        ask(q)
        spent.append(1000 * (time.perf_counter() - begun))
    return f"{statistics.median(spent):8.1f}{statistics.quantiles(spent, n=20)[-1]:9.1f}"


def report(size: int, asked: int) -> None:
    from django.conf import settings

    from agentmemory.search import embeddings

    chance = random.Random(1)
    queries = [words(chance, chance.randint(2, 6)) for _ in range(asked)]
    embedder = Chance()
    embeddings.chosen = lambda: embedder if settings.AGENTMEMORY_EMBEDDER != "none" else None
    settings.AGENTMEMORY_EMBEDDER = "auto"
    own, everyones = fill(size)
    for name, caller, rows in (("own", own, size // AGENTS), ("everyone's", everyones, size)):
        for leg in ("none", "auto"):
            settings.AGENTMEMORY_EMBEDDER = leg
            what = "search, words and vectors" if leg == "auto" else "search, words alone"
            print(f"{size:>10,}{name:>12}{rows:>10,}  {what:28}{timed(searched(caller), queries)}", flush=True)
        for what, ask in (("bare SQL, words", bare_words), ("bare SQL, vectors", bare_vectors)):
            print(f"{size:>10,}{name:>12}{rows:>10,}  {what:28}{timed(ask(caller), queries)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 100_000])
    parser.add_argument("--asked", type=int, default=40)
    options = parser.parse_args()
    print(f"{'memories':>10}{'view':>12}{'in view':>10}  {'':28}{'median':>8}{'p95 ms':>9}")
    for size in options.sizes:
        with throwaway.database():
            from agentmemory.search import vector_tables

            if obstacle := vector_tables.prepare():
                print(f"Without vectors there is nothing to compare: {obstacle}")
                return
            report(size, options.asked)


if __name__ == "__main__":
    main()
