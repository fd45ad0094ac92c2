"""The runner of this service, put together: its loop, the models of agents, the queue that calls it."""

from __future__ import annotations

import logging
import time

from django.conf import settings
from django.dispatch import receiver

from agentmemory.models import Session
from distillation.services import thinking
from sessions_exec import signals
from sessions_exec.llm.streaming import OnText
from sessions_exec.runner import runs
from sessions_exec.services import own_runs

logger = logging.getLogger(__name__)

TASK = "config.runs.run_session"


@receiver(signals.session_wanted)
def take_up(sender: object, *, session_id: int, **_: object) -> None:
    """Have a session run, with the wish that it be, where its agent is run here."""
    if own_runs.runs_here(session_id):
        own_runs.ask(session_id, task=TASK)


def run_session(session_id: int) -> str:
    """What the task does: answer what waits in a session, if it is still to be run here (D16)."""
    session = Session.objects.select_related("agent__space", "space").filter(pk=session_id).first()
    if session is None:
        return "gone"
    own_runs.begun(session)
    if not own_runs.runs_here(session_id):
        return "not run here"
    ran = run(session, deadline=time.monotonic() + settings.AGENTMEMORY_TASK_TIMEOUT)
    if ran.state == runs.OUT_OF_TIME:
        own_runs.ask(session_id, task=TASK)
    return ran.state


def run(session: Session, *, on_text: OnText | None = None, deadline: float | None = None) -> runs.Ran:
    """Answer what waits in a session through its agent's own model."""
    more = {} if on_text is None else {"on_text": on_text}
    ran = runs.run(session=session, model=thinking.AgentModel(session), deadline=deadline, **more)
    logger.info("a run ended", extra={"action": "run.ended", "session": session.pk, "state": ran.state})
    return ran


def sweep() -> str:
    """Take up again the turns that were left open between two steps, whose task was lost."""
    asked = sum(own_runs.ask(session_id, task=TASK) for session_id in own_runs.left_open_here())
    return f"{asked} turns taken up again"
