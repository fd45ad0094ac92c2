"""Rows that name an owner, a session or a message name its space with it, so that no row crosses spaces (T1)."""

from __future__ import annotations

from django.db import migrations

KEYS = [
    ("token_agent_in_space", "token", "agent", "agent", "CASCADE"),
    ("session_agent_in_space", "session", "agent", "agent", "NO ACTION"),
    ("message_session_in_space", "message", "session", "session", "CASCADE"),
    ("messageedge_session_in_space", "messageedge", "session", "session", "CASCADE"),
    ("memory_owner_in_space", "memory", "owner", "agent", "NO ACTION"),
    ("memorysource_memory_in_space", "memorysource", "memory", "memory", "CASCADE"),
    ("memorysource_session_in_space", "memorysource", "session", "session", "SET NULL (session_id)"),
    ("memorysource_message_in_space", "memorysource", "message", "message", "SET NULL (message_id)"),
]


def add(name: str, table: str, column: str, target: str, on_delete: str) -> migrations.RunSQL:
    return migrations.RunSQL(
        f"ALTER TABLE agentmemory_{table} ADD CONSTRAINT {name} FOREIGN KEY ({column}_id, space_id) "
        f"REFERENCES agentmemory_{target} (id, space_id) ON DELETE {on_delete}",
        f"ALTER TABLE agentmemory_{table} DROP CONSTRAINT {name}",
    )


class Migration(migrations.Migration):
    dependencies = [("agentmemory", "0001_spaces_transcripts_memories")]

    operations = [add(*key) for key in KEYS]
