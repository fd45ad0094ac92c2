"""What a memory says now and what it will say, side by side and word by word, on the page that asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from agentmemory.console import diffs, permissions
from agentmemory.models import Memory
from agentmemory.services import curation, inspection, naming
from agentmemory.services.inspection import Version

SHOWN = 5
"""Memories of which the texts are shown, where an act is about several."""

LONGEST = 9
"""Digits of a version's number that are looked at."""


def called(row: Any) -> str:
    """What a memory is called where an act tells what it did: by its key to those alone who may read it."""
    return naming.memory(row, private=row.may_be_read)


def promoted(request: HttpRequest, rows: Sequence[Memory]) -> SafeString:
    """Of each distilled memory whether its curated one is new or written over, and both texts."""
    changes = [_promoted(request, row) for row in rows[:SHOWN]]
    return _page(changes, more=max(0, len(rows) - SHOWN))


def restored(request: HttpRequest, rows: Sequence[Memory]) -> SafeString:
    """The version that is meant, and how what is there now differs from it."""
    memory, version = rows[0], earlier(rows, request.GET.get("version"))
    if version is None:
        return SafeString("")
    change = {
        "says": f"Version {version.event.version} is written again, as version {memory.version + 1}.",
        "by": version if _readable(request, memory) else None,
        "also": _also(memory, version),
        **_texts(request, memory, memory.content, version.content),
    }
    return _page([change])


def earlier(rows: Sequence[Memory], number: Any) -> Version | None:
    """The version of this number; None where there is none."""
    digits = str(number)
    if not (rows and digits.isascii() and digits.isdigit() and len(digits) <= LONGEST):
        return None
    return inspection.version_of(rows[0], int(digits))


def _also(memory: Memory, version: Version) -> str:
    """What else than the text is different from now, by name."""
    fields = {name for name in curation.RESTORED if getattr(memory, name) != getattr(version.event, name)}
    return ", ".join(sorted(name.replace("expires_at", "expiry") for name in fields - {"content"}))


def _promoted(request: HttpRequest, row: Memory) -> dict[str, Any]:
    curated = inspection.curated_of(row)
    called = naming.memory(row, private=permissions.reads_private(request))
    if curated is None:
        says = f"{called}: there is no curated memory of its key and owner, a new one is written."
        return {"says": says, **_texts(request, row, None, row.content)}
    becomes = f"its version {curated.version} becomes {curated.version + 1}."
    says = f"{called}: the curated memory of its key and owner is written over, {becomes}"
    if curated.withdrawn_at is not None:
        says += " It is withdrawn, and comes back with that."
    if curated.tags != row.tags and _readable(request, row):
        says += f" Its tags become: {', '.join(row.tags) or 'none'}."
    return {"says": says, **_texts(request, row, curated.content, row.content)}


def _readable(request: HttpRequest, memory: Memory) -> bool:
    return naming.readable(memory, private=permissions.reads_private(request))


def _texts(request: HttpRequest, memory: Memory, now: str | None, then: str) -> dict[str, Any]:
    """For those who may read them; that they did is on record."""
    if not _readable(request, memory):
        return {"hidden": permissions.HIDDEN}
    if memory.owner_id is not None:
        permissions.note_look(request, memory, memory.space)
    differs = now is not None and now != then
    return {"now": now, "then": then, "diff": diffs.words(now or "", then) if differs else ""}


def _page(changes: Sequence[dict[str, Any]], *, more: int = 0) -> SafeString:
    return SafeString(render_to_string("console/texts.html", {"changes": changes, "more": more}))
