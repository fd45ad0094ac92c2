from __future__ import annotations

from django.apps import AppConfig


class DistillationConfig(AppConfig):
    name = "distillation"
    verbose_name = "Distillation"

    def ready(self) -> None:
        # Connects the signal's receiver: from here on every finished turn moves a watermark.
        from distillation.services import watermarks  # noqa: F401
