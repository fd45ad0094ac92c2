from __future__ import annotations

from django.apps import AppConfig


class SessionsExecConfig(AppConfig):
    name = "sessions_exec"
    verbose_name = "Execution"

    def ready(self) -> None:
        # Connects the signals' receivers: from here on the log follows every transcript.
        from agentmemory.services import stored_secrets
        from sessions_exec.models import Input
        from sessions_exec.services import erasure, following  # noqa: F401

        stored_secrets.PLACES.append(stored_secrets.Place(model=Input, columns=("prompt",)))
