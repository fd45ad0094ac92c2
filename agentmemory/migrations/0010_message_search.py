"""Words of messages, for search in transcripts (M10). Rows of messages that are here already come with the next one."""

from __future__ import annotations

import django.contrib.postgres.indexes
import django.contrib.postgres.search
import django.db.models.deletion
from django.db import migrations, models

CASCADE = """
ALTER TABLE agentmemory_messageindex ADD CONSTRAINT messageindex_message
FOREIGN KEY (message_id) REFERENCES agentmemory_message (id) ON DELETE CASCADE NOT VALID;
ALTER TABLE agentmemory_messageindex VALIDATE CONSTRAINT messageindex_message
"""

# Bound to its path, because a body in PL/pgSQL is resolved when it runs.
TRIGGERS = """
CREATE FUNCTION agentmemory_index_message() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NEW.is_speech THEN
        INSERT INTO agentmemory_messageindex (message_id) VALUES (NEW.id)
        ON CONFLICT (message_id) DO UPDATE SET search = NULL;
    ELSE
        DELETE FROM agentmemory_messageindex WHERE message_id = NEW.id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER message_index AFTER INSERT ON agentmemory_message
FOR EACH ROW WHEN (NEW.is_speech) EXECUTE FUNCTION agentmemory_index_message();
CREATE TRIGGER message_index_changed AFTER UPDATE OF text, is_speech ON agentmemory_message
FOR EACH ROW WHEN ((OLD.text, OLD.is_speech) IS DISTINCT FROM (NEW.text, NEW.is_speech))
EXECUTE FUNCTION agentmemory_index_message()
"""

NO_TRIGGERS = """
DROP TRIGGER message_index ON agentmemory_message;
DROP TRIGGER message_index_changed ON agentmemory_message;
DROP FUNCTION agentmemory_index_message()
"""


class Migration(migrations.Migration):
    dependencies = [("agentmemory", "0009_merges_in_space")]

    operations = [
        migrations.CreateModel(
            name="MessageIndex",
            fields=[
                (
                    "message",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="index",
                        serialize=False,
                        to="agentmemory.message",
                    ),
                ),
                ("search", django.contrib.postgres.search.SearchVectorField(editable=False, null=True)),
            ],
            options={
                "verbose_name_plural": "message indexes",
                "indexes": [
                    django.contrib.postgres.indexes.GinIndex(fields=["search"], name="message_index_search"),
                    models.Index(
                        condition=models.Q(("search__isnull", True)), fields=["message"], name="message_index_empty"
                    ),
                ],
            },
        ),
        migrations.RunSQL(CASCADE, migrations.RunSQL.noop),
        migrations.RunSQL(TRIGGERS, NO_TRIGGERS),
    ]
