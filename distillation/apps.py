from __future__ import annotations

from django.apps import AppConfig


class DistillationConfig(AppConfig):
    name = "distillation"
    verbose_name = "Distillation"

    def ready(self) -> None:
        # Connects the receivers: from here on every finished turn moves a watermark, and what is taken back is settled.
        from distillation.services import reconciliation, watermarks  # noqa: F401
