"""Where distillation keeps words of people and agents, for the search for everything."""

from __future__ import annotations

from agentmemory.services.finding import Looked, Place
from agentmemory.services.kept import of_agent
from distillation.models import Cursor, DistillationPass, Quarantine


def _window(row: DistillationPass) -> str:
    return f"{row.session_name}, messages {row.start + 1} to {row.end}"


PLACES = [
    Place(
        kind="pass",
        looked=(Looked(model=DistillationPass, columns=("answer", "error", "written", "refused")),),
        where=_window,
        whose=of_agent,
        related=("agent", "space"),
    ),
    Place(
        kind="pass by its session",
        looked=(Looked(model=DistillationPass, columns=("session_name",)),),
        where=lambda row: f"pass {row.pk}",
        whose=of_agent,
        related=("agent", "space"),
        stays="It keeps the name of its session until that is purged.",
    ),
    Place(
        kind="distillation of a session",
        looked=(Looked(model=Cursor, columns=("last_error", "waits_for")),),
        where=lambda row: row.session.name,
        whose=of_agent,
        related=("session", "agent", "space"),
        stays="It goes with any message of its session that is purged, or with the next failure.",
    ),
    Place(
        kind="quarantined message",
        looked=(Looked(model=Quarantine, columns=("uid", "error", "decided_reason")),),
        where=lambda row: f"{row.cursor.session.name}, message {row.seq}",
        whose=of_agent,
        related=("cursor__session", "agent", "space"),
        stays="It goes with its message.",
    ),
]
