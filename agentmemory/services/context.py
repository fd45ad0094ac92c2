"""What an agent is given at start-up: its core memories, those that concern a question, and both as text (M8)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from uuid import UUID

from django.db.models import F, FloatField
from django.db.models.functions import Coalesce, Extract, Now, Power

from agentmemory import speech
from agentmemory.callers import Caller
from agentmemory.models import Memory
from agentmemory.search import ranking
from agentmemory.services import memories

MAX_CHARS = 6_000
"""Characters of the block for a prompt, unless the caller says otherwise."""

CORE_COUNT = 10
CORE_CHARS = 2_000
"""Characters of all core memories together."""

RELEVANT_COUNT = 5
RELEVANT_CHARS = 500
"""Characters of each relevant memory."""

HALF_LIFE_DAYS = 30.0
"""After as many days since it was last used, a memory's use counts for half."""

_SHORTEST_EXCERPT = 40
_CLOSER = re.compile(r"<(?=[\s/]*recalled[\s_-]*memory)", re.IGNORECASE)


@dataclass(frozen=True)
class Shown:
    """A memory as the block shows it: `excerpt` is its content, cut with an ellipsis where there is more."""

    memory: Memory
    excerpt: str

    @property
    def heading(self) -> str:
        scope = "private" if self.memory.owner_id else "shared"
        return f"- {' '.join(self.memory.key.split())} ({self.memory.origin}, {scope}): "


@dataclass(frozen=True)
class Context:
    """No memory is in both lists. `text` is both, marked as recorded data; empty where nothing is remembered."""

    core: list[Shown]
    relevant: list[Shown]
    text: str


def build(*, caller: Caller, q: str | None = None, max_chars: int = MAX_CHARS) -> Context:
    """What the caller should know now, in at most `max_chars` characters of text. Counts no access (M6)."""
    core = list(_core(caller))
    relevant = list(_relevant(caller, q, without={shown.memory.pk for shown in core})) if q else []
    return Context(core, relevant, _text({"Core memories": core, "Relevant memories": relevant}, max_chars))


def _core(caller: Caller) -> Iterator[Shown]:
    """Pinned first, then by use that fades with time; what was never used, by importance and age."""
    seconds = Extract(Now() - Coalesce(F("last_accessed_at"), Now()), "epoch")
    use = F("access_count") * Power(0.5, seconds / (HALF_LIFE_DAYS * 86_400), output_field=FloatField())
    found = memories.listing(caller=caller).searchable()
    ranked = found.order_by("-pinned", use.desc(), "-importance", "-updated_at", "-id")
    left = CORE_CHARS
    for memory in ranked.defer("search", "context")[:CORE_COUNT]:
        excerpt = shortened(memory.content, left)
        if not excerpt:
            return
        left -= len(excerpt)
        yield Shown(memory, excerpt)


def _relevant(caller: Caller, q: str, *, without: Collection[UUID]) -> Iterator[Shown]:
    results = ranking.search(caller=caller, q=q, limit=RELEVANT_COUNT + len(without), count_access=False)
    others = (found.memory for found in results.items if found.memory.pk not in without)
    for memory in islice(others, RELEVANT_COUNT):
        yield Shown(memory, shortened(memory.content, RELEVANT_CHARS))


def shortened(text: str, limit: int) -> str:
    """`text`, or its beginning and an ellipsis in `limit` characters, whole words; nothing where too little is left."""
    if len(text) <= limit:
        return text
    if limit < _SHORTEST_EXCERPT:
        return ""
    beginning = text[: limit - 1]
    return (beginning.rsplit(maxsplit=1)[0] if " " in beginning[limit // 2 :] else beginning).rstrip() + "…"


def _text(parts: dict[str, list[Shown]], max_chars: int) -> str:
    """The block, ended where the next memory would not fit any more."""
    lines: list[str] = []
    for title, shown_list in parts.items():
        for number, shown in enumerate(shown_list):
            heading = shown.heading if number else f"{title}:\n{shown.heading}"
            line = _fitting(lines, heading, shown.excerpt, max_chars)
            if not line:
                return _block(lines) if lines else ""
            lines.append(line)
    return _block(lines) if lines else ""


def _fitting(lines: list[str], heading: str, excerpt: str, max_chars: int) -> str:
    """The entry, cut so that the block with it fits; nothing where it cannot."""
    while excerpt:
        line = heading + excerpt.replace("\n", "\n  ")
        excess = len(_block([*lines, line])) - max_chars
        if excess <= 0:
            return line
        excerpt = shortened(excerpt, len(excerpt) - excess)
    return ""


def _block(lines: Iterable[str]) -> str:
    body = _CLOSER.sub("&lt;", speech.escaped("\n".join(lines)))
    return f"{speech.RECALLED_BEGIN}\n{body}\n{speech.RECALLED_END}"
