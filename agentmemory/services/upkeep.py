"""What has to be tidied now and then, in bounded steps."""

from __future__ import annotations

from django.contrib.sessions.backends.db import SessionStore
from django.db import connection

from agentmemory.services import embedding, logins, rates, repeats

MOST_AT_ONCE = 50_000

# One statement, so that a reader's snapshot sees each access once: still fresh, or already added up. What is chosen is
# materialized: as a plain subquery it may be run again for each row it is joined to, and take more each time.
_ADD_UP = """
WITH chosen AS MATERIALIZED (
    SELECT id FROM agentmemory_memoryaccess ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED
), taken AS (
    DELETE FROM agentmemory_memoryaccess WHERE id IN (SELECT id FROM chosen) RETURNING memory_id, at
), summed AS (
    SELECT memory_id, count(*) AS uses, max(at) AS last_at FROM taken GROUP BY memory_id
)
INSERT INTO agentmemory_memoryusage AS usage (memory_id, count, last_at)
SELECT memory_id, uses, last_at FROM summed ORDER BY memory_id
ON CONFLICT (memory_id) DO UPDATE
SET count = usage.count + excluded.count, last_at = greatest(usage.last_at, excluded.last_at)
"""


def add_up_accesses() -> int:
    """Add single accesses to the memories' usage (M6). Returns how many memories it touched."""
    with connection.cursor() as cursor:
        cursor.execute(_ADD_UP, [MOST_AT_ONCE])
        return int(cursor.rowcount)


def run() -> str:
    """Do all of it, and say in one line what was done."""
    embedding.prepare()
    rates.forget_old()
    repeats.forget_old()
    logins.forget_old()
    SessionStore.clear_expired()
    return f"the uses of {add_up_accesses()} memories added up"
