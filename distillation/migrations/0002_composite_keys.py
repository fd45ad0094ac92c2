"""Cursors and passes belong to the space of the session and the agent they name (T1)."""

from __future__ import annotations

from django.db import migrations

KEYS = [
    ("cursor_session_in_space", "cursor", "session", "CASCADE"),
    ("cursor_agent_in_space", "cursor", "agent", "NO ACTION"),
    ("pass_session_in_space", "distillationpass", "session", "SET NULL (session_id)"),
    ("quarantine_agent_in_space", "quarantine", "agent", "NO ACTION"),
    ("pass_agent_in_space", "distillationpass", "agent", "NO ACTION"),
]


def add(name: str, table: str, target: str, on_delete: str) -> migrations.RunSQL:
    return migrations.RunSQL(
        f"ALTER TABLE distillation_{table} ADD CONSTRAINT {name} FOREIGN KEY ({target}_id, space_id) "
        f"REFERENCES agentmemory_{target} (id, space_id) ON DELETE {on_delete}",
        f"ALTER TABLE distillation_{table} DROP CONSTRAINT {name}",
    )


class Migration(migrations.Migration):
    dependencies = [
        ("distillation", "0001_cursors_passes"),
        ("agentmemory", "0002_composite_keys"),
    ]

    operations = [add(*key) for key in KEYS]
