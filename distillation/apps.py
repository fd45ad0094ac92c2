from __future__ import annotations

from django.apps import AppConfig


class DistillationConfig(AppConfig):
    name = "distillation"
    verbose_name = "Distillation"

    def ready(self) -> None:
        # Connects the receivers: from here on every finished turn moves a watermark, and what is taken back is settled.
        from agentmemory.services import acts_of_memories, finding, stored_secrets
        from distillation.models import Cursor, DistillationPass, Quarantine
        from distillation.services import erasure, kept, reconciliation, watermarks  # noqa: F401

        finding.places += kept.PLACES
        acts_of_memories.ON_TRANSCRIPTS |= {row._meta.label_lower for row in (Cursor, DistillationPass, Quarantine)}
        stored_secrets.PLACES += [
            stored_secrets.Place(model=DistillationPass, columns=("answer", "written", "refused", "error")),
            stored_secrets.Place(model=Cursor, columns=("last_error",)),
            stored_secrets.Place(model=Quarantine, columns=("error",)),
        ]
