"""Merges and links stay within their space (T1). In steps, and beside the traffic: writes go on meanwhile."""

from __future__ import annotations

from django.contrib.postgres.operations import AddIndexConcurrently, ValidateConstraint
from django.db import migrations, models

# None of them may lead out of its space. What repeated a curated memory that is purged stands by itself again.
KEYS = [
    ("memory_merged_in_space", "memory", "merged_into", "NO ACTION"),
    ("memory_repeats_in_space", "memory", "repeats", "SET NULL (repeats_id)"),
    ("consolidation_memory_in_space", "consolidation", "memory", "CASCADE"),
    ("consolidation_other_in_space", "consolidation", "other", "CASCADE"),
]


def add(name: str, table: str, column: str, on_delete: str) -> list[migrations.RunSQL]:
    """A composite key in two steps: the second looks through the table, and nobody waits for it."""
    return [
        migrations.RunSQL(
            f"ALTER TABLE agentmemory_{table} ADD CONSTRAINT {name} FOREIGN KEY ({column}_id, space_id) "
            f"REFERENCES agentmemory_memory (id, space_id) ON DELETE {on_delete} NOT VALID",
            f"ALTER TABLE agentmemory_{table} DROP CONSTRAINT {name}",
        ),
        migrations.RunSQL(
            f"ALTER TABLE agentmemory_{table} VALIDATE CONSTRAINT {name}",
            migrations.RunSQL.noop,
        ),
    ]


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("agentmemory", "0008_merges")]

    operations = [
        AddIndexConcurrently(
            "memory",
            models.Index(fields=["merged_into"], condition=models.Q(merged_into__isnull=False), name="memory_merged"),
        ),
        AddIndexConcurrently(
            "memory",
            models.Index(fields=["repeats"], condition=models.Q(repeats__isnull=False), name="memory_repeats"),
        ),
        ValidateConstraint("memory", "memory_linked_is_distilled"),
        *(step for key in KEYS for step in add(*key)),
    ]
