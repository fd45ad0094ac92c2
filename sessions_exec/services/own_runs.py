"""What the runner of this service notes of sessions: which it is to take up, which it left open, and what keeps it.

A task is a hint: what is wanted stands in the inputs, and what was left open in the session. A lost task is made
again, a doubled one finds nothing to do.
"""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction
from django.db.models import F, Q, QuerySet

from agentmemory.models import Agent, Session
from agentmemory.services import redaction
from sessions_exec import queue
from sessions_exec.leases import ClockTimestamp
from sessions_exec.models import Execution, Input

ASK_AGAIN = timedelta(seconds=60)
"""A task that was made so long ago is taken for lost; what keeps a session from being run is looked at as often."""

MOST_AT_ONCE = 500


def runs_here(session_id: int) -> bool:
    """Whether a session is one of an agent that an operator set to be run here, and that may work (D16)."""
    return _of_agents_here(Session.objects.filter(pk=session_id)).exists()


@transaction.atomic
def ask(session_id: int, *, task: str) -> bool:
    """Have `task` called with a session, unless one was made for it lately. Returns whether one was made now."""
    space_id = Session.objects.values_list("space", flat=True).get(pk=session_id)
    Execution.objects.get_or_create(session_id=session_id, defaults={"space_id": space_id})
    old = Q(asked_at__isnull=True) | Q(asked_at__lte=ClockTimestamp() - ASK_AGAIN)
    asked = Execution.objects.filter(old, pk=session_id).update(asked_at=ClockTimestamp())
    if asked:
        queue.enqueue(task, session_id)
    return bool(asked)


def begun(session: Session) -> None:
    """The task for a session has come: what is wanted from now on needs another."""
    Execution.objects.filter(pk=session.pk, asked_at__isnull=False).update(asked_at=None)


@transaction.atomic
def taken(session: Session, *, epoch: int, left_open: bool) -> None:
    """The runner of this service has acquired a session, maybe with a turn that it left open. Raises `LeaseLost`."""
    Execution.objects.set_while_held(session.pk, epoch=epoch, own=left_open, waits_for="")


@transaction.atomic
def turn_is_open(session: Session, *, epoch: int, is_open: bool) -> None:
    """Note whether a turn is the runner's to end, with what begins or ends it. Raises `LeaseLost`."""
    Execution.objects.set_while_held(session.pk, epoch=epoch, own=is_open)


@transaction.atomic
def kept_from(session: Session, line: str) -> None:
    """Note why a session that is wanted was not taken up; it is looked at again in a while."""
    Execution.objects.get_or_create(session=session, defaults={"space_id": session.space_id})
    note = {"waits_for": redaction.clean_text(line)[:500], "asked_at": ClockTimestamp()}
    Execution.objects.filter(pk=session.pk).update(**note)


def is_left_open(session: Session) -> bool:
    """Whether the runner of this service began a turn of it that has no end: it stopped, or died, between two steps."""
    return _left_open().filter(pk=session.pk).exists()


def left_open_here() -> list[int]:
    """The sessions that are run here, are held by nobody, and have a turn without an end."""
    found = _of_agents_here(_left_open()).filter(execution__holder="")
    return list(found.order_by().values_list("pk", flat=True)[:MOST_AT_ONCE])


def wanted(agent: Agent, *, session: Session | None = None) -> list[Session]:
    """The sessions of an agent, or that one, in which something is to be done now, the longest unheard first."""
    inputs = Input.objects.stranded().order_by().values("session")
    found = Session.objects.filter(agent=agent, pk__in=inputs) | _left_open().filter(agent=agent, execution__holder="")
    if session is not None:
        found = found.filter(pk=session.pk)
    return list(found.select_related("agent__space", "space").order_by("quiet_since", "pk").distinct()[:MOST_AT_ONCE])


def _left_open() -> QuerySet[Session]:
    return Session.objects.filter(terminal_seq__lt=F("last_seq"), execution__own=True)


def _of_agents_here(sessions: QuerySet[Session]) -> QuerySet[Session]:
    return sessions.filter(
        agent__run_here=True,
        agent__status=Agent.Status.ACTIVE,
        agent__archived_at__isnull=True,
        space__archived_at__isnull=True,
    )
