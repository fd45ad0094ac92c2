"""What may keep a due cursor from being distilled now, and who goes first when a provider's pause ends (D16 to D21)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db.models import F, Q

from agentmemory.models import Agent, Provider, Space
from agentmemory.services import providers
from distillation.models import Cursor, DistillationPass
from distillation.services import backoff, resolution
from sessions_exec.llm.messages import ModelCallFailed
from sessions_exec.models import ModelCall

BLOCKED = "blocked"
SKIPPED = "skipped"


@dataclass(frozen=True, kw_only=True)
class Closed:
    """Why a cursor waits. Neither a failure nor a backoff: it is looked at again each time."""

    state: str
    line: str


def check(cursor: Cursor, resolved: resolution.Resolution, *, now: datetime) -> Closed | None:
    """The first thing that keeps a cursor from a paid call, or nothing. Reads only."""
    closed = agent_gate(cursor)
    if closed is not None:
        return closed
    if line := resolution.unusable(resolved):
        return Closed(state=SKIPPED, line=line)
    if line := model_gate(cursor.space, resolved, now=now):
        return Closed(state=BLOCKED, line=line)
    return None


def agent_gate(cursor: Cursor) -> Closed | None:
    """Whether the agent and its space may work at all (D16)."""
    line = worker_gate(cursor.agent, cursor.space)
    return Closed(state=BLOCKED, line=line) if line else None


def worker_gate(agent: Agent, space: Space) -> str:
    """Why an agent may not work now; empty if it may (D16)."""
    if agent.archived_at is not None or space.archived_at is not None:
        return "its space or its agent is archived"
    return "" if agent.status == Agent.Status.ACTIVE else f"agent {agent} is paused"


def model_gate(space: Space, resolved: resolution.Resolution, *, now: datetime) -> str:
    """Why a model may not be called for a space now; empty if it may (D19, D21). Reads only."""
    return resolution.obstacle(resolved) or _paused(resolved.provider, now) or _spent(space, now)


def probe(provider: Provider, *, now: datetime) -> bool:
    """Whether this call may go to the provider: always, or after a pause as the one that tries (D19).

    The others see the pause moved on, and wait for what the one finds out.
    """
    if provider.paused_until is None:
        return True
    until = now + timedelta(seconds=settings.AGENTMEMORY_CURSOR_LEASE)
    ended = Provider.objects.filter(pk=provider.pk, paused_until=provider.paused_until, paused_until__lte=now)
    return ended.update(paused_until=until) == 1


def pause(provider: Provider, failure: ModelCallFailed, *, now: datetime) -> None:
    """Stop all calls to a provider for a while: each of them would fail alike (D19)."""
    Provider.objects.filter(pk=provider.pk).update(
        failures=F("failures") + 1,
        paused_until=now + backoff.wait(provider.failures + 1, retry_after=failure.retry_after),
        paused_reason=failure.message[:1000],
    )


def resume(provider: Provider) -> None:
    """A call got through: the pause, if there was one, is over."""
    Provider.objects.filter(~Q(failures=0) | Q(paused_until__isnull=False), pk=provider.pk).update(
        failures=0, paused_until=None, paused_reason=""
    )


def still_paused(provider: Provider, *, now: datetime) -> None:
    """The call that tried failed for another reason, which says nothing about the pause: the next one may try."""
    Provider.objects.filter(pk=provider.pk, paused_until__gt=now).update(paused_until=now)


def daily_budget(space: Space) -> int | None:
    """Tokens that distillation and runs may use in a space in one UTC day; none means without end (D21)."""
    return space.daily_tokens if space.daily_tokens is not None else settings.AGENTMEMORY_DAILY_TOKENS


def spent_today(space: Space, *, now: datetime) -> int:
    """Tokens that distillation and runs have used in a space since the UTC day began."""
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return DistillationPass.objects.tokens_since(space, midnight) + ModelCall.objects.tokens_since(space, midnight)


def _paused(provider: Provider, now: datetime) -> str:
    line = providers.pause_line(provider, now=now, private=True)
    return f"provider {provider} {line}" if line else ""


def _spent(space: Space, now: datetime) -> str:
    budget = daily_budget(space)
    if budget is None or spent_today(space, now=now) < budget:
        return ""
    return f"today's budget of {budget:,} tokens is spent"
