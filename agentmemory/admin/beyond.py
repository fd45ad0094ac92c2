"""Why a purge takes more than what was chosen, and what in particular: shown before it is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from agentmemory.console import links, permissions
from agentmemory.models import Memory
from agentmemory.services import naming
from agentmemory.services.purging import Preview, Scope

SHOWN = 20
_PASSES, _MEMORIES = "distillation_distillationpass", "agentmemory_memory"
_WHY: Final = {
    _MEMORIES: "Memories go that rest on nothing but what goes, and those that were merged into one that goes.",
    "agentmemory_memoryevent": "Of a memory that goes every version goes; of one that stays, those that came from a "
    "message that goes, and the context of the others.",
    _PASSES: "Passes lose their words and stay, with what they cost: all that were shown a message that goes, "
    "that wrote a memory that goes or refused one of its key, or that read what it rests on. "
    "Their answers hold the same words.",
}


def explained(request: HttpRequest, preview: Preview, scope: Scope) -> SafeString:
    """In words for each table of which more may go than was chosen; the rows beside that by name, a few of them."""
    chosen: dict[str, set[Any]] = {_MEMORIES: set(scope.memory_ids), _PASSES: set(scope.pass_ids)}
    beyond = []
    for table, why in _WHY.items():
        if not preview.counts.get(table):
            continue
        others = sorted(set(preview.rows.get(table, ())) - chosen[table]) if table in chosen else []
        named = _named(request, table, others[:SHOWN])
        beyond.append({"why": why, "rows": named, "more": len(others) - len(named)})
    return SafeString(render_to_string("console/beyond.html", {"beyond": beyond})) if beyond else SafeString()


def _named(request: HttpRequest, table: str, keys: Sequence[Any]) -> list[tuple[str, str]]:
    if table == _PASSES:
        return [(f"pass {pk}", links.a_pass(pk)) for pk in keys]
    private = permissions.reads_private(request)
    rows = Memory.objects.filter(pk__in=keys).select_related("owner").defer("search").order_by("pk")
    return [(naming.memory(row, private=private), links.memory(row.pk)) for row in rows]
