"""What a run would read and cost, without a call and without a write (`distill --dry-run`)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from django.utils import timezone

from agentmemory.models import Agent, Session, Space
from distillation import prompts
from distillation.models import Cursor
from distillation.services import distilling, failures, gates, reading, resolution

# What English prose comes to with current tokenizers, about; an estimate is all that is promised.
CHARS_PER_TOKEN = 4
ANSWER_TOKENS = 400


@dataclass(frozen=True, kw_only=True)
class Preview:
    """One window that a run would read."""

    session: Session
    start: int
    end: int
    messages: int
    characters: int
    input_tokens: int
    output_tokens: int
    cost: Decimal | None
    provider: str
    model: str
    obstacle: str


def due(*, space: Space | None = None, agent: Agent | None = None, session: Session | None = None) -> list[Preview]:
    """Every window of every session that is due."""
    cursors = distilling.within(Cursor.objects.due(timezone.now()), space=space, agent=agent, session=session)
    related = ("session", "space", "agent", "agent__space", "agent__provider")
    rows = cursors.select_related(*related).order_by("due_since", "pk")
    return [preview for cursor in rows for preview in _windows(cursor)]


def _windows(cursor: Cursor) -> Iterator[Preview]:
    resolved = resolution.resolve(cursor.agent)
    closed = gates.check(cursor, resolved, now=timezone.now())
    place = copy.copy(cursor)
    while place.position < place.watermark:
        window = reading.next_window(place)
        if window.shown:
            known = [each.known for each in reading.known_for(cursor.agent, window)]
            prompt = reading.prompt(cursor.agent, window, known, fence=prompts.new_fence())
            characters = len(prompt.system) + len(prompt.user)
            paid = resolved.provider.kind == "anthropic"
            tokens_in, tokens_out = (characters // CHARS_PER_TOKEN, ANSWER_TOKENS) if paid else (0, 0)
            yield Preview(
                session=cursor.session,
                start=window.start,
                end=window.end,
                messages=len(window.shown),
                characters=characters,
                input_tokens=tokens_in,
                output_tokens=tokens_out,
                cost=failures.cost(resolved.provider, tokens_in, tokens_out),
                provider=resolved.provider.name,
                model=resolved.model,
                obstacle=closed.line if closed else "",
            )
        place.position = window.end
