"""The operators' pages of this app. Other apps build theirs with the same means."""

from __future__ import annotations

from agentmemory.admin import (
    activity,
    certificates,
    consolidations,
    logins,
    memories,
    providers,
    sessions,
    spaces,
    tokens,
)

__all__ = [
    "activity",
    "certificates",
    "consolidations",
    "logins",
    "memories",
    "providers",
    "sessions",
    "spaces",
    "tokens",
]
