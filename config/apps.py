from __future__ import annotations

from django.apps import AppConfig


class ConfigConfig(AppConfig):
    """What spans the apps: commands, checks, probes."""

    name = "config"
    label = "config"
    verbose_name = "Agent Memory"

    def ready(self) -> None:
        # Imported for its side effect: the checks register themselves.
        from config import checks  # noqa: F401
