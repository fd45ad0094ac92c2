"""What a coordinator's tick costs: so many sessions that are due among ever more that are not (D22).

    python -m bench.coordinator [--sizes 10000 100000 1000000] [--due 1000] [--agents 100]

Printed are, for each size, the tick's time, the time of the plain SQL that finds the same, their ratio, both the
median of several in this run, and the rows that a tick read of the cursors' table. A database of its own is made for
the run, and removed.
"""

# ruff: noqa: T201 - what it prints is what it is for
from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from bench import throwaway

ROUNDS = 5
SESSIONS = """
    INSERT INTO agentmemory_session (space_id, agent_id, name, title, metadata, last_seq, terminal_seq, quiet_since,
        created_at, updated_at)
    SELECT %(space)s, %(first)s + n %% %(agents)s, 's' || n, '', '{}', 10, 10, now(), now(), now()
    FROM generate_series(%(begin)s, %(end)s) AS n
"""
CURSORS = """
    INSERT INTO distillation_cursor (session_id, space_id, agent_id, holder, epoch, position, watermark, failures,
        window_failures, single_failures, attempts, last_error, waits_for, due_since, created_at)
    SELECT id, space_id, agent_id, '', 0, 10, 10, 0, 0, 0, 0, '', '', NULL, now()
    FROM agentmemory_session WHERE id > %(after)s
"""
FALL_DUE = """
    UPDATE distillation_cursor SET position = 0, due_since = now() - interval '1 minute', enqueued_at = NULL
    WHERE id IN (SELECT id FROM distillation_cursor ORDER BY id %% 9973, id LIMIT %(due)s)
"""
PLAIN = """
    SELECT c.id, c.agent_id FROM distillation_cursor c
    JOIN agentmemory_agent a ON a.id = c.agent_id JOIN agentmemory_space s ON s.id = c.space_id
    WHERE c.watermark - c.position > 0 AND (c.next_attempt_at IS NULL OR c.next_attempt_at <= now())
      AND (c.expires_at IS NULL OR c.expires_at <= now()) AND (c.enqueued_at IS NULL OR c.enqueued_at <= now())
      AND a.status = 'active' AND a.archived_at IS NULL AND s.archived_at IS NULL
    ORDER BY c.due_since, c.id LIMIT 5000
"""
READ = """
    SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables
    WHERE relname = 'distillation_cursor'
"""


def sql(statement: str, **values: Any) -> list[tuple[Any, ...]]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        return cursor.fetchall() if cursor.description else []


def fill(*, space: int, first: int, agents: int, begin: int, end: int) -> None:
    """Sessions whose every turn has been distilled."""
    after = sql("SELECT coalesce(max(id), 0) FROM agentmemory_session")[0][0]
    sql(SESSIONS, space=space, first=first, agents=agents, begin=begin, end=end)
    sql(CURSORS, after=after)
    sql("VACUUM ANALYZE agentmemory_session")
    sql("ANALYZE agentmemory_agent")
    sql("ANALYZE agentmemory_space")
    sql("VACUUM ANALYZE distillation_cursor")


def seconds(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def rows_read() -> int:
    sql("SELECT pg_stat_force_next_flush()")
    sql("SELECT pg_stat_clear_snapshot()")
    return int(sql(READ)[0][0])


def measure(*, size: int, due: int) -> None:
    from distillation.services import coordinator

    ticks, plain, read, found = [], [], 0, 0
    for _ in range(ROUNDS):
        sql("UPDATE distillation_cursor SET enqueued_at = NULL WHERE enqueued_at IS NOT NULL")
        sql("DELETE FROM django_q_ormq")
        sql("VACUUM distillation_cursor")
        plain.append(seconds(lambda: sql(PLAIN)))
        before = rows_read()
        begun = time.perf_counter()
        found = coordinator.tick().cursors
        ticks.append(time.perf_counter() - begun)
        read = rows_read() - before
    tick, alone = statistics.median(ticks), statistics.median(plain)
    assert found == due, (found, due)  # noqa: S101 - else something else was measured
    print(f"{size:>10,} {due:>7,} {tick * 1000:>10.1f} {alone * 1000:>10.1f} {tick / alone:>7.1f} {read:>10,}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--due", type=int, default=1_000)
    parser.add_argument("--agents", type=int, default=100)
    options = parser.parse_args()
    with throwaway.database():
        from agentmemory.models import Agent, Space

        space = Space.objects.create(slug="bench")
        rows = Agent.objects.bulk_create(Agent(space=space, handle=f"a{n}") for n in range(options.agents))
        print(f"{'sessions':>10} {'due':>7} {'tick, ms':>10} {'SQL, ms':>10} {'ratio':>7} {'rows read':>10}")
        there = 0
        for size in sorted(options.sizes):
            fill(space=space.pk, first=rows[0].pk, agents=options.agents, begin=there, end=size - 1)
            sql("UPDATE distillation_cursor SET position = watermark WHERE position < watermark")
            sql(FALL_DUE, due=options.due)
            sql("VACUUM ANALYZE distillation_cursor")
            measure(size=size, due=options.due)
            there = size


if __name__ == "__main__":
    main()
