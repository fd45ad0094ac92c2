from __future__ import annotations

from django.apps import AppConfig


class SessionsExecConfig(AppConfig):
    name = "sessions_exec"
    verbose_name = "Execution"

    def ready(self) -> None:
        # Connects the signals' receivers: from here on the log follows every transcript.
        from sessions_exec.services import following  # noqa: F401
