from __future__ import annotations

from django.apps import AppConfig


class SessionsExecConfig(AppConfig):
    name = "sessions_exec"
    verbose_name = "Execution"

    def ready(self) -> None:
        # Connects the signals' receivers: from here on the log follows every transcript.
        from agentmemory.services import acts_of_memories, finding, stored_secrets
        from sessions_exec.models import Delivery, Execution, Input, ModelCall, Webhook
        from sessions_exec.services import erasure, following, kept  # noqa: F401

        finding.places += kept.PLACES
        acts_of_memories.ON_TRANSCRIPTS |= {row._meta.label_lower for row in (Execution, Input)}
        stored_secrets.PLACES += [
            stored_secrets.Place(model=Input, columns=("prompt",)),
            stored_secrets.Place(model=Webhook, columns=("name", "paused_reason")),
            # The names of sessions and messages, which clients choose.
            stored_secrets.Place(model=Delivery, columns=("body",)),
            stored_secrets.Place(model=Execution, columns=("waits_for",)),
            stored_secrets.Place(model=ModelCall, columns=("error",)),
        ]
