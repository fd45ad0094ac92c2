from __future__ import annotations

from django.apps import AppConfig, apps
from django.db.models.signals import post_migrate


class ConfigConfig(AppConfig):
    """What spans the apps: commands, checks, probes, the console."""

    name = "config"
    label = "config"
    verbose_name = "Agent Memory"

    def ready(self) -> None:
        # Imported for their side effects: the checks and the receivers register themselves.
        from config import checks, groups, runs, sessions  # noqa: F401

        # After the last of our apps: by then the permissions of all of them are made.
        post_migrate.connect(groups.ensure, sender=apps.get_app_config("distillation"), dispatch_uid="console-groups")
