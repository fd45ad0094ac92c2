"""Search in transcripts: what was said, whether or not anything was remembered of it (M10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from agentmemory import notes
from agentmemory.callers import Caller
from agentmemory.models import Agent, Message, MessageIndex
from agentmemory.search import hybrid, vector_tables
from agentmemory.services import indexing


@dataclass(frozen=True)
class Found:
    """A message that a search found, with what was said around it, in its order. `score` is from 0 to 1."""

    message: Message
    score: float
    before: Sequence[Message]
    after: Sequence[Message]


@dataclass(frozen=True)
class Results:
    """What a search found, the best first; `pending` messages in view have no vector yet."""

    items: list[Found] = field(default_factory=list)
    pending: int = 0


def search(*, caller: Caller, agent: Agent, q: str, limit: int = 10, neighbours: int = 1) -> Results:
    """The messages of `agent`, as far as `caller` may see them, that have most to do with `q`.

    What was taken back or replaced is not found, and is no neighbour. What was said just now is taken apart first, as
    far as that is quickly done.
    """
    said = Message.objects.visible_to(caller).filter(session__agent=agent).standing().filter(is_speech=True)
    view = MessageIndex.objects.filter(message__in=said)
    with notes.beside_a_read():
        indexing.fill(view)
    hits = hybrid.find(view, vector_tables.MESSAGES, q, limit=limit, newest="message__created_at")
    rows = said.select_related("session").defer("content").in_bulk([hit.pk for hit in hits.items])
    found = [(rows[hit.pk], hit.score) for hit in hits.items if hit.pk in rows]
    return Results([_with_neighbours(message, score, neighbours) for message, score in found], hits.pending)


def _with_neighbours(message: Message, score: float, count: int) -> Found:
    near = Message.objects.filter(session_id=message.session_id).standing().filter(is_speech=True).defer("content")
    before = list(near.filter(seq__lt=message.seq).order_by("-seq")[:count])
    return Found(message, score, before[::-1], list(near.filter(seq__gt=message.seq).order_by("seq")[:count]))
