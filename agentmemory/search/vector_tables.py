"""The tables of vectors: made where the database has pgvector, and nowhere else (M7).

They are no models and in no migration, because a migration that fails where an extension is missing would keep the
whole service from starting. Triggers keep them in step with what they are about, whoever writes: a row that is new or
whose words have changed has no vector, and a row that is gone has no row here either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError, connection, transaction

from agentmemory.search import minilm

PREDECESSORS = 2
"""A message is embedded with as many that were said before it: what it answers says what it is about (M10)."""

EXTENSION = "vector"
PIECE = 10_000
"""So many rows that were there before come in at a time."""

_PREPARING = 0x76656374


@dataclass(frozen=True)
class Table:
    """Vectors of one kind of row. A row of it has `version`, which grows whenever the words change; `model`, which
    made the vector, empty while none has; `vector`, NULL where the model can make nothing of the words; and
    `claimed_until`, while somebody is at it."""

    name: str
    rows: str
    key_type: str
    wanted: str = "true"


MEMORIES = Table(name="agentmemory_memoryvector", rows="agentmemory_memory", key_type="uuid")
MESSAGES = Table(name="agentmemory_messagevector", rows="agentmemory_message", key_type="bigint", wanted="is_speech")
TABLES = (MEMORIES, MESSAGES)

# Rows without a current vector are found by `model < current OR model > current`: an index serves that, however few
# they are among however many.
_TABLE = """
CREATE TABLE IF NOT EXISTS {name} (
    row_id {key_type} PRIMARY KEY,
    version bigint NOT NULL DEFAULT 1,
    model text NOT NULL DEFAULT '',
    vector vector({dimensions}),
    claimed_until timestamptz
);
CREATE INDEX IF NOT EXISTS {name}_model ON {name} (model)
"""

_FORGOTTEN = "version = kept.version + 1, model = '', vector = NULL, claimed_until = NULL"

# Bound to its path, because a body in PL/pgSQL is resolved when it runs.
_MEMORY_TRIGGERS = f"""
CREATE OR REPLACE FUNCTION agentmemory_memory_words() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM agentmemory_memoryvector WHERE row_id = OLD.id;
    ELSE
        INSERT INTO agentmemory_memoryvector AS kept (row_id) VALUES (NEW.id)
        ON CONFLICT (row_id) DO UPDATE SET {_FORGOTTEN};
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER memory_vector AFTER INSERT OR DELETE ON agentmemory_memory
FOR EACH ROW EXECUTE FUNCTION agentmemory_memory_words();
CREATE OR REPLACE TRIGGER memory_vector_changed AFTER UPDATE OF key, content, tags, context ON agentmemory_memory
FOR EACH ROW WHEN ((OLD.key, OLD.content, OLD.tags, OLD.context) IS DISTINCT FROM
    (NEW.key, NEW.content, NEW.tags, NEW.context))
EXECUTE FUNCTION agentmemory_memory_words()
"""  # noqa: S608 - made of the constants above

# What a message said is in the vectors of those that follow it, too.
_MESSAGE_TRIGGERS = f"""
CREATE OR REPLACE FUNCTION agentmemory_message_words() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    message agentmemory_message := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
BEGIN
    IF TG_OP = 'DELETE' OR NOT message.is_speech THEN
        DELETE FROM agentmemory_messagevector WHERE row_id = message.id;
    ELSE
        INSERT INTO agentmemory_messagevector AS kept (row_id) VALUES (message.id)
        ON CONFLICT (row_id) DO UPDATE SET {_FORGOTTEN};
    END IF;
    IF TG_OP <> 'INSERT' THEN
        UPDATE agentmemory_messagevector AS kept SET {_FORGOTTEN}
        WHERE row_id IN (
            SELECT id FROM agentmemory_message
            WHERE session_id = message.session_id AND seq > message.seq AND is_speech
            ORDER BY seq LIMIT {PREDECESSORS}
        );
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER message_vector AFTER INSERT ON agentmemory_message
FOR EACH ROW WHEN (NEW.is_speech) EXECUTE FUNCTION agentmemory_message_words();
CREATE OR REPLACE TRIGGER message_vector_gone AFTER DELETE ON agentmemory_message
FOR EACH ROW WHEN (OLD.is_speech) EXECUTE FUNCTION agentmemory_message_words();
CREATE OR REPLACE TRIGGER message_vector_changed AFTER UPDATE OF text, is_speech, retracted_at, superseded_by
ON agentmemory_message FOR EACH ROW WHEN ((OLD.text, OLD.is_speech, OLD.retracted_at, OLD.superseded_by)
    IS DISTINCT FROM (NEW.text, NEW.is_speech, NEW.retracted_at, NEW.superseded_by))
EXECUTE FUNCTION agentmemory_message_words()
"""  # noqa: S608 - made of the constants above

_COMPLETE = r"""
SELECT to_regclass(%s) IS NOT NULL AND to_regclass(%s) IS NOT NULL AND (
    SELECT count(*) = 5 FROM pg_trigger
    WHERE tgrelid IN (to_regclass('agentmemory_memory'), to_regclass('agentmemory_message'))
        AND (tgname LIKE 'memory\_vector%%' OR tgname LIKE 'message\_vector%%')
)
"""

_SEEDED = """
WITH piece AS (
    SELECT id, {wanted} AS wanted FROM {rows} WHERE %(after)s::{key_type} IS NULL OR id > %(after)s
    ORDER BY id LIMIT %(limit)s
), seeded AS (
    INSERT INTO {name} (row_id)
    SELECT id FROM piece WHERE wanted AND NOT EXISTS (SELECT FROM {name} WHERE row_id = id)
    ON CONFLICT DO NOTHING
)
SELECT id FROM piece ORDER BY id DESC LIMIT 1
"""

_ORPHANS = "DELETE FROM {name} WHERE NOT EXISTS (SELECT FROM {rows} WHERE id = row_id)"

_REMOVED = """
DROP TABLE IF EXISTS agentmemory_memoryvector, agentmemory_messagevector;
DROP FUNCTION IF EXISTS agentmemory_memory_words, agentmemory_message_words CASCADE
"""


def are_there() -> bool:
    """Whether this database has the tables, and what keeps them in step."""
    with connection.cursor() as cursor:
        cursor.execute(_COMPLETE, [table.name for table in TABLES])
        return bool(cursor.fetchone()[0])


@transaction.atomic
def prepare() -> str:
    """Make the tables where they are missing and can be made. Returns what keeps them from it, or nothing.

    Of several that come at once one makes them and the others wait. Rows that were there before come in by `tidy`.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_PREPARING])
        if are_there():
            return ""
        if obstacle := _extension_obstacle():
            return obstacle
        for table in TABLES:
            cursor.execute(_TABLE.format(name=table.name, key_type=table.key_type, dimensions=minilm.DIMENSIONS))
        cursor.execute(_MEMORY_TRIGGERS)
        cursor.execute(_MESSAGE_TRIGGERS)
    return ""


def tidy() -> None:
    """Take in what was there before the tables were, piece by piece, and let go of what is there no more."""
    for table in TABLES:
        _seed(table)
        with connection.cursor() as cursor:
            cursor.execute(_ORPHANS.format(name=table.name, rows=table.rows))


def remove() -> None:
    """Take the tables away, with every vector and every trigger; the words they were made of are untouched."""
    with connection.cursor() as cursor:
        cursor.execute(_REMOVED)


def _seed(table: Table) -> None:
    statement = _SEEDED.format(name=table.name, rows=table.rows, key_type=table.key_type, wanted=table.wanted)
    after: Any = None
    with connection.cursor() as cursor:
        while True:
            cursor.execute(statement, {"after": after, "limit": PIECE})
            last = cursor.fetchone()
            if last is None:
                return
            after = last[0]


def _extension_obstacle() -> str:
    """Have the extension, and return nothing; or the database's own words why it cannot be had."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"CREATE EXTENSION IF NOT EXISTS {EXTENSION}")
    except DatabaseError as error:
        return str(error).strip().partition("\n")[0]
    return ""
