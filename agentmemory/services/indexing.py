"""Words of messages taken apart for search (M10): by the first search that might need them, else in the background."""

from __future__ import annotations

import time
from typing import Any

from django.conf import settings
from django.db import connection, models, transaction
from django.db.models.functions import Length

from agentmemory.models import MessageIndex
from agentmemory.search.vector_tables import PREDECESSORS

BATCH = 200
CHARACTERS = 100_000
"""About as much is taken apart in a third of a second: what a search may be kept waiting for."""

RUN_SECONDS = 20.0

CONTEXT_LENGTH = 1_000
"""Characters of each message before it that help to find a message."""

_FILL = """
UPDATE agentmemory_messageindex AS kept SET search = agentmemory_message_vector(message.text, (
    SELECT string_agg(said, E'\\n') FROM (
        SELECT left(text, %(context)s) AS said FROM agentmemory_message AS earlier
        WHERE earlier.session_id = message.session_id AND earlier.seq < message.seq
            AND is_speech AND retracted_at IS NULL AND superseded_by = ''
        ORDER BY seq DESC LIMIT %(predecessors)s
    ) AS before
))
FROM agentmemory_message AS message WHERE message.id = kept.message_id AND kept.message_id = ANY(%(ids)s)
"""


def is_due() -> bool:
    """Whether words of some message wait to be taken apart."""
    return MessageIndex.objects.filter(search__isnull=True).exists()


def run() -> str:
    """Take apart what waits, for a bounded time. Returns in one line what was done."""
    last = time.monotonic() + min(RUN_SECONDS, settings.AGENTMEMORY_TASK_TIMEOUT / 4)
    done = 0
    while time.monotonic() < last and (filled := fill(MessageIndex.objects.all())):
        done += filled
    return f"words of {done} messages taken apart"


@transaction.atomic
def fill(rows: models.QuerySet[MessageIndex]) -> int:
    """Take apart the newest of `rows` that wait, at most `BATCH` messages and about `CHARACTERS`. Returns how many.

    The rows are locked by a statement of its own: a text that changes at the same time is then either read as it is
    now, or empties its row again after us. Rows that somebody else is at are left to them.
    """
    waiting = rows.filter(search__isnull=True).order_by("-message_id").annotate(size=Length("message__text"))
    locked = waiting.select_for_update(skip_locked=True, of=("self",)).values_list("message_id", "size")
    ids: list[int] = []
    left = CHARACTERS
    for pk, size in locked[:BATCH]:
        if ids and size > left:
            break
        ids.append(pk)
        left -= size
    if ids:
        with connection.cursor() as cursor:
            values: dict[str, Any] = {"ids": ids, "context": CONTEXT_LENGTH, "predecessors": PREDECESSORS}
            cursor.execute(_FILL, values)
    return len(ids)
