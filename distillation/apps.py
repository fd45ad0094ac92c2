from __future__ import annotations

from django.apps import AppConfig


class DistillationConfig(AppConfig):
    name = "distillation"
    verbose_name = "Distillation"
