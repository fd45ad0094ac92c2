"""Migrations on a real database: from nothing, and each one back and forth with rows in its tables (A1)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import connection, transaction
from django.db.migrations.exceptions import IrreversibleError
from django.db.migrations.executor import MigrationExecutor

from agentmemory.authorship import Author
from agentmemory.callers import Caller
from agentmemory.models import Certificate, Memory, Session
from agentmemory.services import (
    consolidation,
    curation,
    distilled,
    memories,
    merging,
    removals,
    sessions,
    spaces,
    tokens,
    transcripts,
    upkeep,
)
from agentmemory.services.transcripts import NewMessage
from distillation.models import Cursor, DistillationPass, Quarantine
from sessions_exec.models import ModelCall, Webhook
from sessions_exec.models.webhooks import TEST
from sessions_exec.services import announcing, executions, inbox

pytestmark = pytest.mark.django_db(transaction=True)

OURS = ("agentmemory", "sessions_exec", "distillation")
Node = tuple[str, str]
# Providers are made when a pass asks for one; the cluster's own rows and recoveries by those that run; what is kept of
# calls by calls.
UNFILLED = {
    "agentmemory_callwindow",
    "agentmemory_logintries",
    "agentmemory_provider",
    "agentmemory_storedanswer",
    "sessions_exec_heartbeat",
    "sessions_exec_recovery",
    "sessions_exec_taskrun",
    "sessions_exec_tick",
}


@pytest.fixture
def scratch(transactional_db: None) -> Iterator[None]:
    """A database of its own in place of the tests': what is done to its tables stays with it."""
    name, own = connection.settings_dict["NAME"], f"{connection.settings_dict['NAME']}_scratch"
    _alone(f'DROP DATABASE IF EXISTS "{own}"', f'CREATE DATABASE "{own}"')
    connection.close()
    connection.settings_dict["NAME"] = own
    # Which are known by their numbers in the other database.
    ContentType.objects.clear_cache()
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["NAME"] = name
        ContentType.objects.clear_cache()
        _alone(f'DROP DATABASE "{own}"')


def _alone(*statements: str) -> None:
    for statement in statements:
        with connection.cursor() as cursor:
            cursor.execute(statement)


def fill() -> None:
    """Rows in every table, by the ways that they come in real life."""
    agent = spaces.ensure_agent(spaces.ensure("acme"), "ada")
    tokens.issue(space=agent.space, agent=agent)
    session, _ = sessions.adopt(agent=agent, name="s1", title="A talk")
    said = [NewMessage(uid=f"m{n}", type="user", content=f"Number {n}.") for n in range(5)]
    ends = NewMessage(uid="r", type="result", content="done", supersedes=["m4"])
    transcripts.append(session=session, messages=[*said, ends])
    removals.retract(session=session, uids=["m3", "later"])
    caller = Caller(space=agent.space, agent=agent)
    for n in range(3):
        memories.put(caller=caller, draft=memories.Draft(key=f"k{n}", content=f"Statement {n}.", tags=["a", "b"]))
    memories.delete(caller=caller, key="k2")
    memories.get(caller=caller, key="k0")
    upkeep.add_up_accesses()
    memories.get(caller=caller, key="k1")
    found, again = (distil(session, key) for key in ("d", "e"))
    merging.merge(memory_id=again.pk, into_id=found.pk, author=Author(kind="system", name="tests"), why="the same")
    Certificate.objects.get_or_create(who="operator:olga", reason="asked for")
    consolidation.run(plan=consolidation.plan())
    curation.promote(memory_id=found.pk, author=Author(kind="operator", name="olga"), reason="right")
    cursor = Cursor.objects.get(session=session)
    place = {"space": agent.space, "agent": agent, "cursor": cursor}
    DistillationPass.objects.create(**place, session=session, session_name="s1", epoch=1, start=0, end=6)
    Quarantine.objects.create(**place, uid="m1", seq=2)
    Webhook.objects.create(space=agent.space, name="w", url="https://example.org", events=[TEST], salt="s")
    announcing.announce(TEST, space_id=agent.space.pk, data={})
    run_a_session(caller)


def distil(session: Session, key: str) -> Memory:
    source = distilled.Source(message=session.messages.get(uid="m0"), quote="0", verified=True)
    finding = distilled.Finding(key=key, content="Distilled.", tags=[], context="", sources=[source])
    with transaction.atomic():
        return distilled.write(session=session, finding=finding, pass_id=1).memory


def run_a_session(caller: Caller) -> None:
    assert caller.agent is not None
    session, _ = sessions.adopt(agent=caller.agent, name="s2")
    inbox.admit(session=session, uid="i1", prompt="Go on.", delivery="queue")
    executions.acquire(session=session, holder="runner", seconds=30)
    ModelCall.objects.create(
        space=session.space,
        agent=session.agent,
        session=session,
        epoch=1,
        purpose="answer",
        provider_name="p",
        model="m",
    )


def plan() -> list[Node]:
    """All migrations of our own, in the order in which they are applied."""
    executor = MigrationExecutor(connection)
    full = executor.migration_plan(executor.loader.graph.leaf_nodes(), clean_start=True)
    return [(migration.app_label, migration.name) for migration, _ in full if migration.app_label in OURS]


def migrate(app: str, name: str | None) -> None:
    executor = MigrationExecutor(connection)
    executor.migrate([(app, name)])  # type: ignore[list-item]


def before(nodes: list[Node], at: int) -> tuple[str, str | None]:
    """What the app of the node `at` stood at before it."""
    app = nodes[at][0]
    earlier = [name for label, name in nodes[:at] if label == app]
    return app, earlier[-1] if earlier else None


def counts() -> dict[str, int]:
    """How many rows each table of our own has."""
    with connection.cursor() as cursor:
        names = [name for name in connection.introspection.table_names(cursor) if name.startswith(OURS)]
        found = {}
        for name in names:
            cursor.execute(f"SELECT count(*) FROM {connection.ops.quote_name(name)}")
            found[name] = cursor.fetchone()[0]
    return found


@pytest.mark.slow
def test_a1_every_migration_runs_from_nothing_and_back_and_forth_over_rows(scratch: None) -> None:
    call_command("migrate", verbosity=0)
    fill()
    full = counts()
    # A new table gets rows in `fill`, or says here why it has none.
    assert {name for name, rows in full.items() if not rows} <= UNFILLED
    nodes = plan()
    for at in reversed(range(len(nodes))):
        app, name = nodes[at]
        earlier = before(nodes, at)
        try:
            migrate(*earlier)
        except IrreversibleError:
            # Below this one nothing goes back; what is above it was tried.
            break
        left = counts()
        # What stays has its rows; forth over them, and back again.
        assert {table: full[table] for table in left} == left, f"{app}.{name} lost rows on its way back"
        migrate(app, name)
        assert {table: rows for table, rows in counts().items() if table in left} == left, f"{app}.{name} lost rows"
        migrate(*earlier)
    call_command("migrate", verbosity=0)
    fill()
    assert counts() == full
