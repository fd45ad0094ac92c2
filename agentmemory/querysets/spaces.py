"""Reads of spaces, agents, providers and tokens."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

if TYPE_CHECKING:
    from agentmemory.models import Agent, Provider, Space, Token  # noqa: F401


class SpaceQuerySet(models.QuerySet["Space"]):
    def active(self) -> SpaceQuerySet:
        return self.filter(archived_at__isnull=True)


class AgentQuerySet(models.QuerySet["Agent"]):
    def present(self) -> AgentQuerySet:
        """Neither archived themselves nor in an archived space (T4)."""
        return self.filter(archived_at__isnull=True, space__archived_at__isnull=True)

    def working(self) -> AgentQuerySet:
        """Present and not paused: their sessions may be distilled (D16)."""
        return self.present().filter(status="active")


class ProviderQuerySet(models.QuerySet["Provider"]):
    def enabled(self) -> ProviderQuerySet:
        return self.filter(enabled=True)


class TokenQuerySet(models.QuerySet["Token"]):
    def valid(self) -> TokenQuerySet:
        """Neither revoked nor expired, of a space and an agent that stand (T3, T4)."""
        return self.filter(
            Q(expires_at__isnull=True) | Q(expires_at__gt=Now()),
            Q(agent__isnull=True) | Q(agent__archived_at__isnull=True),
            revoked_at__isnull=True,
            space__archived_at__isnull=True,
        )

    def touch(self, pk: Any) -> int:
        """Note a use, at most once a minute, so that a busy token is not a hot row."""
        stale = Q(last_used_at__isnull=True) | Q(last_used_at__lt=Now() - timedelta(minutes=1))
        return self.filter(stale, pk=pk).update(last_used_at=Now())
