"""What was said and what is remembered, as rows."""

from __future__ import annotations

from agentmemory.models.activity import Activity
from agentmemory.models.calls import CallWindow, StoredAnswer
from agentmemory.models.certificates import Certificate
from agentmemory.models.consolidations import Consolidation, ConsolidationLook
from agentmemory.models.logins import LoginTries
from agentmemory.models.memories import Memory, MemoryAccess, MemoryEvent, MemorySource, MemoryUsage
from agentmemory.models.spaces import Agent, Provider, Space, Token
from agentmemory.models.transcripts import Message, MessageEdge, MessageIndex, Session

__all__ = [
    "Activity",
    "Agent",
    "CallWindow",
    "Certificate",
    "Consolidation",
    "ConsolidationLook",
    "LoginTries",
    "Memory",
    "MemoryAccess",
    "MemoryEvent",
    "MemorySource",
    "MemoryUsage",
    "Message",
    "MessageEdge",
    "MessageIndex",
    "Provider",
    "Session",
    "Space",
    "StoredAnswer",
    "Token",
]
