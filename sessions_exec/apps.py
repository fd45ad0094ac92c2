from __future__ import annotations

from django.apps import AppConfig


class SessionsExecConfig(AppConfig):
    name = "sessions_exec"
    verbose_name = "Execution"
