"""A row of the index for each message that is here already, piece by piece; their words follow in the background."""

from __future__ import annotations

from django.db import migrations

PIECE = 10_000

FILL = """
WITH piece AS (
    SELECT id, is_speech FROM agentmemory_message WHERE id > %s ORDER BY id LIMIT %s FOR KEY SHARE
), filled AS (
    INSERT INTO agentmemory_messageindex (message_id)
    SELECT id FROM piece WHERE is_speech ON CONFLICT (message_id) DO NOTHING
)
SELECT max(id) FROM piece
"""


def fill(apps, schema_editor):
    after = 0
    while after is not None:
        with schema_editor.connection.cursor() as cursor:
            cursor.execute(FILL, [after, PIECE])
            (after,) = cursor.fetchone()


class Migration(migrations.Migration):
    # Each piece is a transaction of its own.
    atomic = False
    dependencies = [("agentmemory", "0010_message_search")]

    operations = [migrations.RunPython(fill, migrations.RunPython.noop)]
