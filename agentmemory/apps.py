from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class AgentmemoryConfig(AppConfig):
    name = "agentmemory"
    verbose_name = "Memory"

    def ready(self) -> None:
        from agentmemory.services import finding, kept

        finding.places += kept.PLACES
        post_migrate.connect(_prepare_vectors, sender=self, dispatch_uid="agentmemory-vectors")


def _prepare_vectors(**_: object) -> None:
    """Make the tables of vectors with the others, where the database can have them (M7)."""
    from agentmemory.services import embedding

    embedding.prepare()
