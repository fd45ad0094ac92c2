"""What the rows of a table are called, where operators read how many of them there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from django.apps import apps

# Where the name of the model is no word of the console's, or says more or less than one row.
_WORDS: Final = {
    "agentmemory_memoryevent": "versions in the history of memories",
    "agentmemory_memorysource": "sources of memories",
    "agentmemory_memoryaccess": "uses of memories",
    "agentmemory_memoryusage": "days of use of memories",
    "agentmemory_memoryvector": "vectors of memories",
    "agentmemory_messagevector": "vectors of messages",
    "agentmemory_messageindex": "search entries of messages",
    "agentmemory_messageedge": "links between messages",
    "agentmemory_storedanswer": "answers kept for repeated calls",
    "agentmemory_callwindow": "minutes in which calls were counted",
    "distillation_cursor": "places up to which sessions are distilled",
    "distillation_quarantine": "messages in quarantine",
    "sessions_exec_sessionevent": "events of sessions",
    "sessions_exec_eventcounter": "counters of events",
    "sessions_exec_delivery": "deliveries to webhooks",
    "sessions_exec_modelcall": "calls of models",
}


def called(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts by table as counts by what is counted. A table that no model stands for keeps its name."""
    named = {model._meta.db_table: str(model._meta.verbose_name_plural) for model in apps.get_models()}
    return {_WORDS.get(table) or named.get(table, table): count for table, count in counts.items()}
