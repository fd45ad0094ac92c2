"""What was said before a message helps to find it, as the context of a memory does: it is in its index, too (M10).

So a change of what was said empties the rows of those that follow; they are filled again in the background.
"""

from __future__ import annotations

from django.db import migrations

# What it says itself in the place of a memory's content, what was said before it in that of a context.
VECTOR = """
CREATE FUNCTION agentmemory_message_vector(said text, before text) RETURNS tsvector
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN setweight(coalesce(agentmemory_vector(said), ''), 'B') || setweight(coalesce(agentmemory_vector(before), ''), 'D')
"""

# Bound to its path, because a body in PL/pgSQL is resolved when it runs.
FOLLOWERS = """
CREATE FUNCTION agentmemory_reindex_followers() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    message agentmemory_message := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
BEGIN
    UPDATE agentmemory_messageindex SET search = NULL
    WHERE message_id IN (
        SELECT id FROM agentmemory_message
        WHERE session_id = message.session_id AND seq > message.seq AND is_speech
        ORDER BY seq LIMIT 2
    );
    RETURN NULL;
END $$;
CREATE TRIGGER message_index_followers AFTER UPDATE OF text, is_speech, retracted_at, superseded_by
ON agentmemory_message FOR EACH ROW WHEN ((OLD.text, OLD.is_speech, OLD.retracted_at, OLD.superseded_by)
    IS DISTINCT FROM (NEW.text, NEW.is_speech, NEW.retracted_at, NEW.superseded_by))
EXECUTE FUNCTION agentmemory_reindex_followers();
CREATE TRIGGER message_index_followers_gone AFTER DELETE ON agentmemory_message
FOR EACH ROW WHEN (OLD.is_speech) EXECUTE FUNCTION agentmemory_reindex_followers()
"""

NO_FOLLOWERS = """
DROP TRIGGER message_index_followers ON agentmemory_message;
DROP TRIGGER message_index_followers_gone ON agentmemory_message;
DROP FUNCTION agentmemory_reindex_followers()
"""


class Migration(migrations.Migration):
    dependencies = [("agentmemory", "0011_message_index_rows")]

    operations = [
        migrations.RunSQL(VECTOR, "DROP FUNCTION agentmemory_message_vector(text, text)"),
        migrations.RunSQL(FOLLOWERS, NO_FOLLOWERS),
        # What was taken apart without it is taken apart again.
        migrations.RunSQL(
            "UPDATE agentmemory_messageindex SET search = NULL WHERE search IS NOT NULL", migrations.RunSQL.noop
        ),
    ]
