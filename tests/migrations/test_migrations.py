"""Migrations on a real database: from nothing, and each one back and forth with rows in its tables (A1)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import connection
from django.db.migrations.exceptions import IrreversibleError
from django.db.migrations.executor import MigrationExecutor

from tests.support.filled import fill

pytestmark = pytest.mark.django_db(transaction=True)

OURS = ("agentmemory", "sessions_exec", "distillation")
Node = tuple[str, str]
# Providers are made when a pass asks for one; the cluster's own rows and recoveries by those that run; what is kept of
# calls by calls.
UNFILLED = {
    "agentmemory_callwindow",
    "agentmemory_logintries",
    "agentmemory_provider",
    "agentmemory_storedanswer",
    "sessions_exec_heartbeat",
    "sessions_exec_recovery",
    "sessions_exec_taskrun",
    "sessions_exec_tick",
}


@pytest.fixture
def scratch(transactional_db: None) -> Iterator[None]:
    """A database of its own in place of the tests': what is done to its tables stays with it."""
    name, own = connection.settings_dict["NAME"], f"{connection.settings_dict['NAME']}_scratch"
    _alone(f'DROP DATABASE IF EXISTS "{own}"', f'CREATE DATABASE "{own}"')
    connection.close()
    connection.settings_dict["NAME"] = own
    # Which are known by their numbers in the other database.
    ContentType.objects.clear_cache()
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["NAME"] = name
        ContentType.objects.clear_cache()
        _alone(f'DROP DATABASE "{own}"')


def _alone(*statements: str) -> None:
    for statement in statements:
        with connection.cursor() as cursor:
            cursor.execute(statement)


def plan() -> list[Node]:
    """All migrations of our own, in the order in which they are applied."""
    executor = MigrationExecutor(connection)
    full = executor.migration_plan(executor.loader.graph.leaf_nodes(), clean_start=True)
    return [(migration.app_label, migration.name) for migration, _ in full if migration.app_label in OURS]


def migrate(app: str, name: str | None) -> None:
    executor = MigrationExecutor(connection)
    executor.migrate([(app, name)])  # type: ignore[list-item]


def before(nodes: list[Node], at: int) -> tuple[str, str | None]:
    """What the app of the node `at` stood at before it."""
    app = nodes[at][0]
    earlier = [name for label, name in nodes[:at] if label == app]
    return app, earlier[-1] if earlier else None


def counts() -> dict[str, int]:
    """How many rows each table of our own has."""
    with connection.cursor() as cursor:
        names = [name for name in connection.introspection.table_names(cursor) if name.startswith(OURS)]
        found = {}
        for name in names:
            cursor.execute(f"SELECT count(*) FROM {connection.ops.quote_name(name)}")
            found[name] = cursor.fetchone()[0]
    return found


@pytest.mark.slow
def test_a1_every_migration_runs_from_nothing_and_back_and_forth_over_rows(scratch: None) -> None:
    call_command("migrate", verbosity=0)
    fill()
    full = counts()
    # A new table gets rows in `fill`, or says here why it has none.
    assert {name for name, rows in full.items() if not rows} <= UNFILLED
    nodes = plan()
    for at in reversed(range(len(nodes))):
        app, name = nodes[at]
        earlier = before(nodes, at)
        try:
            migrate(*earlier)
        except IrreversibleError:
            # Below this one nothing goes back; what is above it was tried.
            break
        left = counts()
        # What stays has its rows; forth over them, and back again.
        assert {table: full[table] for table in left} == left, f"{app}.{name} lost rows on its way back"
        migrate(app, name)
        assert {table: rows for table, rows in counts().items() if table in left} == left, f"{app}.{name} lost rows"
        migrate(*earlier)
    call_command("migrate", verbosity=0)
    fill()
    assert counts() == full
