"""Several processes bring the database up to date at once: one does it, and the others keep nobody waiting."""

from __future__ import annotations

import pytest
from django.db import connection, connections

from config import running
from tests.support import races

pytestmark = pytest.mark.django_db(transaction=True)


def test_whoever_waits_to_migrate_does_not_hold_up_an_index_that_is_built_concurrently() -> None:
    first = connections["default"].copy()
    with first.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [running.MIGRATING])
        second = races.Actor(lambda: running.migrate(verbosity=0))
        try:
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
