"""What belongs to a session names its space with it, so that no row crosses spaces (T1)."""

from __future__ import annotations

from django.db import migrations

TABLES = ["execution", "input", "recovery", "eventcounter", "sessionevent"]


def add(table: str) -> migrations.RunSQL:
    name = f"{table}_session_in_space"
    return migrations.RunSQL(
        f"ALTER TABLE sessions_exec_{table} ADD CONSTRAINT {name} FOREIGN KEY (session_id, space_id) "
        "REFERENCES agentmemory_session (id, space_id) ON DELETE CASCADE",
        f"ALTER TABLE sessions_exec_{table} DROP CONSTRAINT {name}",
    )


class Migration(migrations.Migration):
    dependencies = [
        ("sessions_exec", "0004_executions"),
        ("agentmemory", "0002_composite_keys"),
    ]

    operations = [add(table) for table in TABLES]
