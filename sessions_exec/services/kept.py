"""Where execution keeps words of people and agents, for the search for everything."""

from __future__ import annotations

from agentmemory.services.finding import Looked, Place
from agentmemory.services.kept import CHANGED, WITH_ITS_SESSION, in_session, of_agent, of_session, of_space
from sessions_exec.models import (
    Delivery,
    Execution,
    Heartbeat,
    Input,
    ModelCall,
    Recovery,
    SessionEvent,
    Tick,
    Webhook,
)

_SESSION = ("session__agent", "session__space")
_OF_THE_CLUSTER = "The task cluster writes over it, or forgets it."

PLACES = [
    Place(
        kind="input",
        looked=(Looked(model=Input, columns=("prompt", "uid")),),
        where=lambda row: f"{row.session.name}, input {row.uid}",
        whose=of_session,
        related=_SESSION,
    ),
    Place(
        kind="execution",
        looked=(Looked(model=Execution, columns=("holder", "assistant_uid", "waits_for")),),
        where=lambda row: row.session.name,
        whose=of_session,
        related=_SESSION,
        stays="The next run writes over it. It goes with its session.",
    ),
    Place(
        kind="recovery",
        looked=(Looked(model=Recovery, columns=("holder", "message_uid", "tool_calls")),),
        where=lambda row: row.session.name,
        whose=of_session,
        related=_SESSION,
        stays=WITH_ITS_SESSION,
    ),
    Place(
        kind="event of a session",
        looked=(Looked(model=SessionEvent, columns=("data",)),),
        where=lambda row: f"{row.session.name}, event {row.seq}",
        whose=of_session,
        page=in_session,
        related=_SESSION,
        stays=WITH_ITS_SESSION,
    ),
    Place(
        kind="call of a model",
        looked=(Looked(model=ModelCall, columns=("error",)),),
        where=lambda row: row.session.name if row.session else "a session that is gone",
        whose=of_agent,
        page=lambda row: in_session(row) if row.session_id else None,
        related=("session", "agent", "space"),
        stays="It goes with any message of its session that is purged.",
    ),
    Place(
        kind="webhook",
        looked=(Looked(model=Webhook, columns=("name", "url", "paused_reason")),),
        where=lambda row: row.name,
        whose=of_space,
        related=("space",),
        stays=CHANGED,
    ),
    Place(
        kind="delivery to a webhook",
        looked=(Looked(model=Delivery, columns=("body", "error")),),
        where=lambda row: row.event,
        whose=lambda row: row.webhook.space.slug,
        related=("webhook__space",),
        stays="It goes with its session, and by itself when it is old.",
    ),
    Place(
        kind="task cluster",
        looked=(Looked(model=Heartbeat, columns=("worker", "host", "last_restart_reason", "last_death_task")),),
        stays=_OF_THE_CLUSTER,
    ),
    Place(kind="schedule", looked=(Looked(model=Tick, columns=("name", "outcome")),), stays=_OF_THE_CLUSTER),
]
