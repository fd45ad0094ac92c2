from __future__ import annotations

from django.apps import AppConfig


class DistillationConfig(AppConfig):
    name = "distillation"
    verbose_name = "Distillation"

    def ready(self) -> None:
        # Connects the receivers: from here on every finished turn moves a watermark, and what is taken back is settled.
        from agentmemory.services import finding, stored_secrets
        from distillation.models import Cursor, DistillationPass, Quarantine
        from distillation.services import erasure, kept, reconciliation, watermarks  # noqa: F401

        finding.places += kept.PLACES
        stored_secrets.PLACES += [
            stored_secrets.Place(model=DistillationPass, columns=("answer", "written", "refused", "error")),
            stored_secrets.Place(model=Cursor, columns=("last_error",)),
            stored_secrets.Place(model=Quarantine, columns=("error",)),
        ]
