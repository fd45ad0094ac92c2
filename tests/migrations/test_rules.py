"""What a migration may do to a table that holds rows, while the release before it still runs (A1).

Read from the migrations themselves, so that a new one that breaks a rule is refused before anybody runs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.postgres.operations import AddConstraintNotValid, AddIndexConcurrently
from django.core.management import call_command
from django.db import migrations, models
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation

OURS = ("agentmemory", "sessions_exec", "distillation")
# What was landed before anybody had rows: it blocked nobody.
BEFORE_THE_FIRST_RELEASE = {
    ("sessions_exec", "0002_task_run_delivery"),
    ("sessions_exec", "0003_queue_index"),
    ("distillation", "0002_composite_keys"),
    ("distillation", "0003_quarantine_retry"),
    ("agentmemory", "0002_composite_keys"),
    ("agentmemory", "0003_lexical_search"),
    ("sessions_exec", "0005_composite_keys"),
}

Named = tuple[str, str]


def _ours() -> list[tuple[Named, migrations.Migration]]:
    found = MigrationLoader(None).disk_migrations
    return sorted((name, migration) for name, migration in found.items() if name[0] in OURS)


def operations(nodes: list[Operation]) -> Iterator[Operation]:
    """The operations, those within others too."""
    for operation in nodes:
        yield operation
        if isinstance(operation, migrations.SeparateDatabaseAndState):
            yield from operations(list(operation.database_operations))


def statements(operation: Operation) -> Iterator[str]:
    """The SQL of an operation, statement by statement, in small letters and with single blanks."""
    if not isinstance(operation, migrations.RunSQL):
        return
    given = operation.sql if isinstance(operation.sql, list | tuple) else [operation.sql]
    for part in given:
        text = part[0] if isinstance(part, list | tuple) else part
        yield re.sub(r"\s+", " ", str(text)).lower().strip()


def fault(operation: Operation, *, new: set[str]) -> str:
    """Why an operation may not run on a table with rows beside the old release; empty when it may.

    `new` are the tables' models that the same migration makes: nobody has rows in them.
    """
    model = str(getattr(operation, "model_name", "") or getattr(operation, "name", "")).lower()
    if model in new:
        return ""
    if isinstance(operation, migrations.AddField):
        return _fault_of_column(operation.field)
    if isinstance(operation, migrations.RemoveField | migrations.DeleteModel):
        return "the old release still reads what is taken away"
    if isinstance(operation, migrations.RenameField | migrations.RenameModel | migrations.AlterModelTable):
        return "the old release still calls it by its old name"
    if isinstance(operation, migrations.AddIndex) and not isinstance(operation, AddIndexConcurrently):
        return "writes wait while the index is made"
    if isinstance(operation, migrations.AddConstraint) and not isinstance(operation, AddConstraintNotValid):
        return "all rows are looked through under a lock"
    for sql in statements(operation):
        if re.search(r"add column (?!.*\bdefault\b).*\bnot null\b|set not null", sql):
            return "a column without a default that the old release does not fill"
        if re.match(r"create (unique )?index (?!concurrently)", sql):
            return "writes wait while the index is made"
        if re.search(r"add constraint .* (foreign key|check|unique)", sql) and "not valid" not in sql:
            return "all rows are looked through under a lock"
        if re.search(r"\b(drop (table|column)|rename (to|column)|truncate)\b", sql):
            return "the old release still reads what is taken away"
    return ""


def _fault_of_column(field: models.Field[Any, Any]) -> str:
    if field.null or field.many_to_many or field.has_db_default() or getattr(field, "generated", False):
        return ""
    return "a column without a default that the old release does not fill"


def _faults(name: Named, migration: migrations.Migration) -> list[str]:
    new = {each.name.lower() for each in operations(migration.operations) if isinstance(each, migrations.CreateModel)}
    return [
        f"{'.'.join(name)}: {operation.describe()}: {why}"
        for operation in operations(migration.operations)
        if (why := fault(operation, new=new))
    ]


def _tightened(name: Named, migration: migrations.Migration) -> Iterator[str]:
    """Columns that a migration alone makes NOT NULL: filling and tightening are two releases."""
    state = MigrationLoader(None).project_state(name, at_end=False)
    for operation in operations(migration.operations):
        if isinstance(operation, migrations.AlterField):
            model = state.models.get((name[0], operation.model_name.lower()))
            before = model.fields.get(operation.name) if model else None
            if before is not None and before.null and not operation.field.null and not operation.field.has_db_default():
                yield f"{'.'.join(name)}: {operation.describe()}"


def test_a1_no_migration_stops_the_release_that_still_runs_or_a_table_with_rows() -> None:
    found = [
        each for name, migration in _ours() if name not in BEFORE_THE_FIRST_RELEASE for each in _faults(name, migration)
    ]
    assert found == []


def test_a1_no_migration_adds_a_column_that_the_old_release_does_not_fill() -> None:
    """Without exception, those before the first release too."""
    found = [each for name, migration in _ours() for each in _faults(name, migration) if each.endswith("does not fill")]
    assert found == []


def test_a1_no_migration_makes_a_column_not_null_in_one_step() -> None:
    assert [each for name, migration in _ours() for each in _tightened(name, migration)] == []


def test_a1_every_migration_has_a_name_that_says_what_it_does() -> None:
    for app, name in [name for name, _ in _ours()]:
        assert re.fullmatch(r"\d{4}_[a-z][a-z0-9_]{3,}", name), (app, name)
        assert "auto" not in name, (app, name)


def test_a1_the_migrations_of_an_app_are_one_line() -> None:
    loader = MigrationLoader(None)
    assert loader.detect_conflicts() == {}
    for app in OURS:
        numbers = [name[:4] for (label, name), _ in _ours() if label == app]
        assert numbers == [f"{n:04}" for n in range(1, len(numbers) + 1)]


def test_a1_what_is_built_beside_the_traffic_is_not_in_a_transaction() -> None:
    for name, migration in _ours():
        concurrent = any(isinstance(each, AddIndexConcurrently) for each in operations(migration.operations))
        assert not (concurrent and migration.atomic), name


def test_a1_code_in_a_migration_says_how_it_is_taken_back_and_imports_no_model() -> None:
    for name, migration in _ours():
        for operation in operations(migration.operations):
            if isinstance(operation, migrations.RunPython):
                assert operation.reverse_code is not None, name
                assert operation.code.__module__ == migration.__module__, name


@pytest.mark.django_db
def test_a1_models_and_migrations_agree() -> None:
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


text = models.TextField
ADD = migrations.AddField


@pytest.mark.parametrize(
    ("operation", "refused"),
    [
        (ADD("memory", "x", text()), True),
        (ADD("memory", "x", text(default="")), True),
        (ADD("memory", "x", text(db_default="")), False),
        (ADD("memory", "x", text(null=True)), False),
        (ADD("memory", "x", models.ForeignKey("space", models.CASCADE)), True),
        (ADD("memory", "x", models.ManyToManyField("space")), False),
        (ADD("fresh", "x", text()), False),
        (migrations.RemoveField("memory", "x"), True),
        (migrations.RenameField("memory", "x", "y"), True),
        (migrations.DeleteModel("memory"), True),
        (migrations.AddIndex("memory", models.Index(fields=["x"], name="x")), True),
        (AddIndexConcurrently("memory", models.Index(fields=["x"], name="x")), False),
        (migrations.AddConstraint("memory", models.UniqueConstraint(fields=["x"], name="x")), True),
        (migrations.RunSQL("ALTER TABLE t ADD COLUMN x text NOT NULL"), True),
        (migrations.RunSQL("ALTER TABLE t ADD COLUMN x text NOT NULL DEFAULT ''"), False),
        (migrations.RunSQL([("ALTER TABLE t\n  ALTER x SET NOT NULL", None)]), True),
        (migrations.RunSQL("CREATE INDEX i ON t (x)"), True),
        (migrations.RunSQL("CREATE INDEX CONCURRENTLY i ON t (x)"), False),
        (migrations.RunSQL("ALTER TABLE t ADD CONSTRAINT c FOREIGN KEY (x) REFERENCES u (id)"), True),
        (migrations.RunSQL("ALTER TABLE t ADD CONSTRAINT c FOREIGN KEY (x) REFERENCES u (id) NOT VALID"), False),
        (migrations.RunSQL("ALTER TABLE t DROP COLUMN x"), True),
        (migrations.SeparateDatabaseAndState([migrations.RunSQL("ALTER TABLE t DROP COLUMN x")]), True),
    ],
)
def test_the_reading_of_migrations_finds_what_it_looks_for(operation: Operation, refused: bool) -> None:
    assert any(fault(each, new={"fresh"}) for each in operations([operation])) == refused
