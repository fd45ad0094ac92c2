from __future__ import annotations

from django.apps import AppConfig


class AgentmemoryConfig(AppConfig):
    name = "agentmemory"
    verbose_name = "Memory"
