"""The caller of a read or a write: every look at tenant data starts from one (T2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentmemory.authorship import Author
from agentmemory.models.spaces import Agent, Space

Scope = Literal["mine", "space", "all"]


@dataclass(frozen=True, kw_only=True)
class Caller:
    """One who proved who they are. Without an agent it is trusted for the whole space (a space token)."""

    space: Space
    agent: Agent | None = None
    name: str = ""
    token_id: int | None = None
    calls_per_minute: int | None = None

    @property
    def author(self) -> Author:
        if self.agent is not None:
            return Author(kind="agent", name=self.agent.handle)
        return Author(kind="space", name=self.name or self.space.slug)
