"""Whether traffic may come here, and whether the work is done (D26): progress, not presence."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.models import Q
from django.db.models.functions import Greatest
from django.utils import timezone
from django.utils.timesince import timesince

from agentmemory.models import Space
from config import writing
from distillation.models import Cursor
from distillation.services import coordinator, states
from sessions_exec.models import Tick
from sessions_exec.services import heartbeats

NO_WORKER = "no task cluster gives a sign of life: start one with `python manage.py worker`, or use `up`"
COORDINATOR = coordinator.NAME
OURS = frozenset({"agentmemory", "sessions_exec", "distillation"})
CADENCES = 3
# The queue's scheduler looks every 30 seconds, and the work itself takes its time.
SLACK = timedelta(seconds=120)

_migrated = False


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """The session whose finished turn has waited longest to be distilled, and why it waits."""

    cursor: Cursor
    since: datetime
    state: str
    line: str

    @property
    def age(self) -> timedelta:
        return timezone.now() - self.since


def ready() -> list[str]:
    """What keeps traffic from coming here, a line each; nothing if it may."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        unwritable = writing.lately()
        missing = unapplied()
        worker = settings.AGENTMEMORY_WORKER_NAME
        started = not worker or heartbeats.working(worker)
    except DatabaseError as error:
        return [f"the database does not answer ({type(error).__name__})"]
    problems = [f"not ready: {unwritable}"] if unwritable else []
    if missing:
        problems.append(f"{len(missing)} migrations are not applied: run `python manage.py migrate`")
    return problems if started else [*problems, "the task cluster has not started yet"]


def unapplied() -> list[str]:
    """Migrations that the database does not have yet. Once there is none, this process asks no more."""
    global _migrated
    if _migrated:
        return []
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    _migrated = not plan
    return [f"{migration.app_label}.{migration.name}" for migration, _ in plan]


def of_later_release() -> list[str]:
    """Migrations of ours that the database has and this release does not know."""
    loader = MigrationLoader(connection)
    unknown = sorted(set(loader.applied_migrations) - set(loader.disk_migrations))
    return [f"{app}.{name}" for app, name in unknown if app in OURS]


def progress() -> str | None:
    """One line why the work is not done; nothing if it is done, or if something that is known keeps it."""
    # First: without writes no worker can give a sign of life.
    if unwritable := writing.lately():
        return str(unwritable)
    if not heartbeats.alive():
        return NO_WORKER
    now = timezone.now()
    patience = CADENCES * timedelta(seconds=settings.AGENTMEMORY_CADENCE)
    stuck = _unexplained(now, before=now - patience - _slack())
    if stuck is None:
        return None
    if _coordinator_is_silent(now, patience + _slack()):
        return "the coordinator has not looked for due work for three cadences: see the schedules in `doctor`"
    # Anybody may ask: sessions are named in the console and by `doctor`.
    return f"a session has been due since {stuck.due_since:%Y-%m-%d %H:%M} UTC and nothing was done"


def oldest_waiting(space: Space | None = None) -> Waiting | None:
    """The turn that has waited longest, in a space or in all of them."""
    behind = Cursor.objects.behind().filter(due_since__isnull=False)
    within = behind if space is None else behind.filter(space=space)
    related = within.select_related("session", "agent", "agent__space", "agent__provider", "space")
    cursor = related.order_by("due_since").first()
    if cursor is None or cursor.due_since is None:
        return None
    state = states.describe(cursor, private=True)
    line = NO_WORKER if state.name == states.DUE and not heartbeats.alive() else state.line
    return Waiting(cursor=cursor, since=cursor.due_since, state=state.name, line=line)


def waiting_line(waiting: Waiting) -> str:
    """How long and why, in one line."""
    return f"session {waiting.cursor.session.name} has waited for {timesince(waiting.since)}: {waiting.line}"


def _unexplained(now: datetime, *, before: datetime) -> Cursor | None:
    """A cursor that could be worked at, has not moved since `before`, and that nobody has found blocked."""
    moved = Greatest("due_since", "last_success_at", "next_attempt_at")
    found = Cursor.objects.due(now).annotate(moved=moved).filter(due_since__isnull=False, moved__lt=before)
    explained = Q(waits_for__startswith=f"{states.BLOCKED}:") | Q(waits_for__startswith=f"{states.SKIPPED}:")
    if not _coordinator_is_silent(now, now - before):
        found = found.exclude(explained)
    return found.select_related("session").order_by("due_since").first()


def _coordinator_is_silent(now: datetime, patience: timedelta) -> bool:
    return not Tick.objects.filter(name=COORDINATOR, at__gt=now - patience).exists()


def _slack() -> timedelta:
    """Room for the scheduler's lateness; a cadence of seconds is kept by the ticker, which is not late."""
    return min(SLACK, timedelta(seconds=settings.AGENTMEMORY_CADENCE))
