"""What a run would read and cost, without a call and without a write (`distill --dry-run`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from typing import Protocol

from django.utils import timezone

from agentmemory.models import Agent, Session, Space
from distillation import prompts, windows
from distillation.models import Cursor
from distillation.services import distilling, failures, gates, reading, resolution

# What English prose comes to with current tokenizers, about; an estimate is all that is promised.
CHARS_PER_TOKEN = 4
ANSWER_TOKENS = 400
# A page that estimates has an end: so many sessions, so many windows of each and of all together.
SESSIONS_LOOKED_AT = 50
WINDOWS_LOOKED_AT = 40
WINDOWS_IN_ALL = 200


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


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a run would read of one session. `more`: windows lie behind those that were looked at.

    `about`: the agent's newest memories stand in for those that are shown as known.
    """

    cursor: Cursor
    windows: int
    messages: int
    characters: int
    tokens: int
    cost: Decimal | None
    served_by: str
    obstacle: str
    more: bool
    about: bool


class Known(Protocol):
    """What a window is shown as known."""

    def __call__(self, agent: Agent, window: windows.Window) -> list[reading.KnownVersion]: ...


@dataclass(kw_only=True)
class Newest:
    """An agent's newest memories, which stand in for those that a search would find for each of its windows.

    How much is shown of them has a bound and varies little; searching is what would take the time of an estimate.
    """

    of_agents: dict[int, list[reading.KnownVersion]] = field(default_factory=dict)

    def __call__(self, agent: Agent, window: windows.Window) -> list[reading.KnownVersion]:
        if agent.pk not in self.of_agents:
            self.of_agents[agent.pk] = reading.newest_known(agent)
        return self.of_agents[agent.pk]


@dataclass(kw_only=True)
class Gate:
    """Who serves an agent, and what keeps it from being served now: looked up once for all its sessions."""

    of_agents: dict[int, tuple[resolution.Resolution, gates.Closed | None]] = field(default_factory=dict)

    def __call__(self, cursor: Cursor) -> tuple[resolution.Resolution, gates.Closed | None]:
        if cursor.agent_id not in self.of_agents:
            resolved = resolution.resolve(cursor.agent)
            self.of_agents[cursor.agent_id] = resolved, gates.check(cursor, resolved, now=timezone.now())
        return self.of_agents[cursor.agent_id]


def due(*, space: Space | None = None, agent: Agent | None = None, session: Session | None = None) -> list[Preview]:
    """Every window of every session that is due."""
    cursors = distilling.within(Cursor.objects.due(timezone.now()), space=space, agent=agent, session=session)
    related = ("session", "space", "agent", "agent__space", "agent__provider")
    rows = cursors.select_related(*related).order_by("due_since", "pk")
    gate = Gate()
    return [preview for cursor in rows for preview in _windows(cursor, reading.known_for, gate)]


def by_session(
    *, space: str = "", agent: str = "", session: str = "", most: int = SESSIONS_LOOKED_AT
) -> tuple[list[Estimate], bool]:
    """What a run would read of each session that is due, the oldest first, and whether more are due than that.

    Spaces, agents and sessions are named by slug, handle and name.
    """
    named = {"space__slug": space, "agent__handle": agent, "session__name": session}
    due = Cursor.objects.due(timezone.now()).filter(**{field: name for field, name in named.items() if name})
    related = ("session", "space", "agent", "agent__space", "agent__provider")
    rows = list(due.select_related(*related).order_by("due_since", "pk")[: most + 1])
    found: list[Estimate] = []
    left, newest, gate = WINDOWS_IN_ALL, Newest(), Gate()
    for cursor in rows[:most]:
        if left <= 0:
            break
        found.append(_estimate(cursor, newest, gate, most=min(left, WINDOWS_LOOKED_AT)))
        left -= found[-1].windows
    return found, len(found) < len(rows)


def _estimate(cursor: Cursor, newest: Newest, gate: Gate, *, most: int) -> Estimate:
    previews = list(islice(_windows(cursor, newest, gate), most + 1))
    looked_at = previews[:most]
    costs = [each.cost for each in looked_at if each.cost is not None]
    first = looked_at[0] if looked_at else None
    return Estimate(
        cursor=cursor,
        windows=len(looked_at),
        messages=sum(each.messages for each in looked_at),
        characters=sum(each.characters for each in looked_at),
        tokens=sum(each.input_tokens + each.output_tokens for each in looked_at),
        cost=sum(costs, start=Decimal(0)) if len(costs) == len(looked_at) else None,
        served_by=f"{first.model} ({first.provider})" if first else "",
        obstacle=first.obstacle if first else "",
        more=len(previews) > most,
        about=bool(looked_at and newest.of_agents.get(cursor.agent_id)),
    )


def _windows(cursor: Cursor, known_for: Known, gate: Gate) -> Iterator[Preview]:
    resolved, closed = gate(cursor)
    for window in reading.windows_ahead(cursor):
        if window.shown:
            known = [each.known for each in known_for(cursor.agent, window)]
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
