"""Which words of a row a vector is made of (M7, M10).

Models take in some hundred words, and cut what is longer: what the row itself says comes first. Whoever changes what is
chosen here raises `embeddings.SCHEME`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from django.db import connection

from agentmemory import speech
from agentmemory.models import Memory
from agentmemory.search import embeddings
from agentmemory.search.vector_tables import MEMORIES, PREDECESSORS, Table

_JOINTS = re.compile(r"[-_./:\\]+")

_MESSAGES = """
SELECT message.id, left(message.text, %(longest)s), ARRAY(
    SELECT left(text, %(longest)s) FROM agentmemory_message AS earlier
    WHERE earlier.session_id = message.session_id AND earlier.seq < message.seq
        AND is_speech AND retracted_at IS NULL AND superseded_by = ''
    ORDER BY seq DESC LIMIT %(predecessors)s
)
FROM agentmemory_message AS message WHERE message.id = ANY(%(ids)s)
"""


def of_rows(table: Table, ids: Collection[Any]) -> dict[Any, str]:
    """The words of each of these rows that is there."""
    return _of_memories(ids) if table == MEMORIES else _of_messages(ids)


def _of_memories(ids: Collection[Any]) -> dict[Any, str]:
    """Key, content, tags, and what was said around it. Keys are made of words, too: `tea-preference`."""
    rows = Memory.objects.filter(pk__in=ids).values_list("pk", "key", "content", "tags", "context")
    return {
        pk: "\n".join(filter(None, [_JOINTS.sub(" ", key), content, ", ".join(tags), context]))[: embeddings.LONGEST]
        for pk, key, content, tags, context in rows
    }


def _of_messages(ids: Collection[Any]) -> dict[Any, str]:
    """What a message says, then what was said before it, in its order."""
    with connection.cursor() as cursor:
        values: dict[str, Any] = {"longest": embeddings.LONGEST, "predecessors": PREDECESSORS, "ids": list(ids)}
        cursor.execute(_MESSAGES, values)
        return {
            pk: "\n".join(speech.spoken(said) for said in [text, *reversed(earlier)])[: embeddings.LONGEST]
            for pk, text, earlier in cursor.fetchall()
        }
