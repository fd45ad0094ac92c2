"""Several processes bring the database up to date at once: one does it, and the others keep nobody waiting."""

from __future__ import annotations

import pytest
from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from config import running
from tests.support import clusters, races

pytestmark = pytest.mark.django_db(transaction=True)


def asked_by_others(first: BaseDatabaseWrapper) -> bool:
    """Whether another session has come to ask for the lock."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%%advisory_lock%%' AND pid NOT IN (%s, %s)",
            [connection.connection.info.backend_pid, first.connection.info.backend_pid],
        )
        return bool(cursor.fetchone()[0])


def test_whoever_waits_to_migrate_does_not_hold_up_an_index_that_is_built_concurrently() -> None:
    first = connections["default"].copy()
    with first.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [running.MIGRATING])
        second = races.Actor(lambda: running.migrate(verbosity=0))
        try:
            clusters.until(lambda: asked_by_others(first))
            # As the first would in a migration. It waits for every statement that is under way, of whatever kind.
            cursor.execute("SET statement_timeout = '10s'")
            cursor.execute("CREATE INDEX CONCURRENTLY index_of_a_test ON agentmemory_space (name)")
            assert not second.done()
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [running.MIGRATING])
            first.close()
    second.join()
    assert second.error is None
    with connection.cursor() as cursor:
        cursor.execute("DROP INDEX index_of_a_test")
