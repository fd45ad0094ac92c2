"""Purge: over every table there is, with a certificate that holds none of it (M5, T4, D25).

The whole database is read afterwards, every column of every table as text, for a word that was in all of it.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from agentmemory.authorship import Author
from agentmemory.callers import Caller
from agentmemory.errors import Invalid, NotAllowed, NotFound
from agentmemory.models import (
    Activity,
    Agent,
    Certificate,
    Consolidation,
    Memory,
    MemoryEvent,
    MemorySource,
    Message,
    Session,
    StoredAnswer,
)
from agentmemory.services import activity, curation, embedding, finding, memories, merging, purging, removals, tokens
from agentmemory.services.purging import Scope
from distillation.models import Cursor, DistillationPass, Quarantine
from distillation.services import distilling, operations
from sessions_exec import faults
from sessions_exec.services import executions, inbox
from tests.distillation.conftest import Tell, cursor_of
from tests.factories import AgentFactory, MessageFactory, SessionFactory
from tests.support import model_server
from tests.support.embedders import Concepts
from tests.support.model_server import ModelServer

pytestmark = pytest.mark.django_db
OPERATOR = Author(kind="operator", name="olga")
CANARY = "zqcanaryx"


def dump() -> dict[str, str]:
    """Every table with every row in it as text."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        tables = [name for (name,) in cursor.fetchall()]
        found = {}
        for table in tables:
            cursor.execute(f"SELECT coalesce(string_agg(t::text, chr(10)), '') FROM \"{table}\" AS t")
            found[table] = cursor.fetchone()[0]
    return found


def where(word: str = CANARY) -> set[str]:
    """The tables that hold a word."""
    return {table for table, text in dump().items() if word in text.lower()}


def vectors(model: type[Memory] | type[Message]) -> set[str]:
    """The rows of a table that have a vector."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT row_id FROM {model._meta.db_table}vector WHERE vector IS NOT NULL")
        return {str(pk) for (pk,) in cursor.fetchall()}


def remembered(server: ModelServer, session: Session, *items: dict[str, Any]) -> None:
    server.script(model_server.memories(list(items)))
    assert distilling.run_cursor(cursor_id=cursor_of(session).pk).state == "applied"


def item(key: str, content: str, sources: list[int], quote: str = "", **more: Any) -> dict[str, Any]:
    return {"key": key, "content": content, "sources": sources, "quote": quote, "tags": [], **more}


@pytest.fixture
def full(server: ModelServer, tell: Tell, agent: Agent) -> Session:
    """A session whose every message speaks of the canary, distilled, looked at, acted upon, failed and quarantined."""
    session = tell(f"We call it {CANARY} one.", f"And {CANARY} two.", f"Also {CANARY} three.", name=f"s-{CANARY}")
    Session.objects.update(title=f"About {CANARY}", metadata={"k": CANARY})
    remembered(
        server,
        session,
        item(f"{CANARY}-key", f"It is called {CANARY}.", [1], f"We call it {CANARY} one.", tags=[CANARY]),
        item(f"{CANARY}-two", f"A second {CANARY} of another kind.", [2]),
        item("", f"refused {CANARY}", [3]),
        item(f"{CANARY}-foreign", f"refused {CANARY}", [99]),
    )
    first = Memory.objects.get(key=f"{CANARY}-key")
    curation.edit(memory_id=first.pk, author=OPERATOR, reason=f"because of {CANARY}", tags=[CANARY, "x"])
    curation.withdraw(memory_id=first.pk, author=OPERATOR, reason=f"{CANARY} is wrong")
    curation.reinstate(memory_id=first.pk, author=OPERATOR, reason=f"{CANARY} is right")
    memories.get(caller=Caller(space=agent.space, agent=agent), key=f"{CANARY}-key")
    removals.retract(session=session, uids=["u3", f"{CANARY}-later"], reason=f"{CANARY} by mistake")
    server.script(model_server.raw_text(f"no JSON, {CANARY}"))
    tell(f"More of {CANARY}.", name=f"s-{CANARY}")
    distilling.run_cursor(cursor_id=cursor_of(session).pk)
    cursor = cursor_of(session)
    Cursor.objects.update(last_error=f"it said {CANARY}")
    Quarantine.objects.create(
        space=session.space, agent=agent, cursor=cursor, uid="u1", seq=1, error=f"{CANARY} failed"
    )
    operations.clear_backoff(cursor_id=cursor.pk, operator="olga", reason=f"for {CANARY}")
    inbox.admit(session=session, uid="i1", prompt=f"Go on with {CANARY}.", delivery="queue")
    held = executions.acquire(session=session, holder="runner", seconds=60)
    guard = executions.Held(execution_id=held.execution_id, epoch=held.epoch)
    assert inbox.promote(session=session, guard=guard, boundary="idle")
    inbox.admit(session=session, uid="i2", prompt=f"And then {CANARY}.", delivery="queue")
    session.refresh_from_db()
    return session


EVERYWHERE = {
    "agentmemory_activity",
    "agentmemory_memory",
    "agentmemory_memoryevent",
    "agentmemory_memorysource",
    "agentmemory_message",
    "agentmemory_messageedge",
    "agentmemory_session",
    "distillation_cursor",
    "distillation_distillationpass",
    "distillation_quarantine",
    "sessions_exec_input",
}


def test_m5_a_purged_session_is_in_no_table_any_more(full: Session) -> None:
    assert where() >= EVERYWHERE
    scope = Scope(session_ids=[full.pk])
    preview = purging.preview(scope=scope)
    assert where() >= EVERYWHERE, "a preview takes everything back"
    certificate = purging.purge(scope=scope, author=OPERATOR, reason="a person asked for it")
    assert where() == set()
    assert certificate.counts == preview.counts
    assert certificate.scope == {"sessions": [full.pk]}
    assert (certificate.who, certificate.reason) == ("operator:olga", "a person asked for it")
    assert certificate.counts["agentmemory_memory"] == 2
    assert (
        certificate.counts["agentmemory_message"] == Message.objects.count() + certificate.counts["agentmemory_message"]
    )


def test_m5_a_purged_session_leaves_no_vector_of_its_memories_and_messages(concepts: Concepts, full: Session) -> None:
    kept = Memory.objects.create(space=full.space, origin="curated", key="tea", content="tea", created_by="ada")
    embedding.run()
    assert len(vectors(Memory)) == Memory.objects.count() > 1
    assert vectors(Message)
    purging.purge(scope=Scope(session_ids=[full.pk]), author=OPERATOR, reason="a person asked for it")
    assert vectors(Memory) == {str(kept.pk)}
    assert vectors(Message) == set()
    assert where() == set()


def test_m5_everything_that_an_agent_has_is_purged_and_the_agent_stays(
    full: Session,
    agent: Agent,
) -> None:
    caller = Caller(space=agent.space, agent=agent)
    memories.put(caller=caller, draft=memories.Draft(key=f"{CANARY}-own", content=f"Curated {CANARY}."))
    shared = Memory.objects.get(key=f"{CANARY}-two")
    curation.share(memory_id=shared.pk, author=OPERATOR, reason="r")
    purging.purge(scope=Scope(agent_ids=[agent.pk]), author=OPERATOR, reason="a person asked for it")
    assert where() == set()
    assert Agent.objects.filter(pk=agent.pk).exists()


def test_m5_what_an_agent_said_before_it_was_shared_is_purged_with_the_agent(agent: Agent) -> None:
    caller = Caller(space=agent.space, agent=agent)
    written = memories.put(caller=caller, draft=memories.Draft(key="port", content=f"At first {CANARY}.")).memory
    memories.put(caller=caller, draft=memories.Draft(key="port", content="It is 8080."))
    curation.share(memory_id=written.pk, author=OPERATOR, reason="r")
    purging.purge(scope=Scope(agent_ids=[agent.pk]), author=OPERATOR, reason="a person asked for it")
    assert where() == set()
    assert Memory.objects.get().content == "It is 8080."


def test_m5_purged_memories_are_in_no_table_but_the_transcript(full: Session) -> None:
    Message.objects.filter(session=full).update(text="", content="")
    MemorySource.objects.filter(seq__gt=2).delete()
    ids = list(Memory.objects.values_list("pk", flat=True))
    purging.purge(scope=Scope(memory_ids=ids), author=OPERATOR, reason="asked for")
    left = where()
    assert not left & {"agentmemory_memory", "agentmemory_memoryevent", "agentmemory_memorysource"}
    assert f"{CANARY}-key" not in "".join(dump().values())
    assert not DistillationPass.objects.exclude(answer="").filter(outcome="applied").exists()


def test_m5_purged_messages_take_what_rests_on_nothing_else_and_leave_the_rest(
    server: ModelServer,
    tell: Tell,
) -> None:
    session = tell(f"We call it {CANARY}.", "The port is 8080.", "Yes, 8080.")
    remembered(
        server,
        session,
        item(f"{CANARY}-name", f"It is {CANARY}.", [1], f"We call it {CANARY}."),
        item("port", "The port is 8080.", [1, 2], f"We call it {CANARY}."),
    )
    assert CANARY in Memory.objects.get(key="port").context
    message = Message.objects.get(uid="u1")
    certificate = purging.purge(scope=Scope(message_ids=[message.pk]), author=OPERATOR, reason="asked for")
    assert where() == set()
    assert certificate.scope == {"messages": [message.pk]}
    port = Memory.objects.get()
    assert (port.key, port.content) == ("port", "The port is 8080.")
    assert list(MemorySource.objects.values_list("uid", "quote")) == [("u2", "")]
    assert list(Message.objects.order_by("seq").values_list("seq", flat=True)) == [2, 3, 4]
    assert DistillationPass.objects.get().input_tokens > 0


def test_m5_a_version_that_came_from_a_purged_message_is_gone_and_the_earlier_one_stands(
    server: ModelServer,
    tell: Tell,
) -> None:
    session = tell("The port is 8080.")
    remembered(server, session, item("port", "The port is 8080.", [1]))
    tell(f"The port is {CANARY}.")
    remembered(server, session, item("port", f"The port is {CANARY}.", [3]))
    message = Message.objects.get(uid="u3")
    purging.purge(scope=Scope(message_ids=[message.pk]), author=OPERATOR, reason="asked for")
    assert where() == set()
    assert Memory.objects.get().content == "The port is 8080."
    assert MemoryEvent.objects.filter(version=1).exists()


def test_m9_what_was_merged_into_a_purged_memory_goes_with_it_and_leaves_nothing_where_it_went(
    agent: Agent,
) -> None:
    def distilled(key: str, **values: Any) -> Memory:
        return Memory.objects.create(
            space=agent.space, owner=agent, origin="distilled", key=key, created_by="pass:1", **values
        )

    survivor = distilled("port", content="The port.")
    gone = distilled(f"{CANARY}-port", content=f"{CANARY} port", tags=[CANARY])
    hidden = distilled("below", content=f"Also {CANARY}.")
    for memory, into in ((hidden, gone), (gone, survivor)):
        merging.merge(memory_id=memory.pk, into_id=into.pk, author=OPERATOR, why="w", reason="r")
    assert CANARY in Memory.objects.get(pk=survivor.pk).tags
    purging.purge(scope=Scope(memory_ids=[gone.pk]), author=OPERATOR, reason="asked for")
    assert where() == set()
    assert Memory.objects.get().pk == survivor.pk
    assert not Consolidation.objects.exists()


def test_m9_what_repeated_a_purged_curated_memory_is_found_again(agent: Agent) -> None:
    place = {"space": agent.space, "owner": agent, "created_by": "agent:ada", "content": "The same."}
    curated = Memory.objects.create(**place, origin="curated", key="a")
    repetition = Memory.objects.create(**place, origin="distilled", key="b")
    merging.link(memory_id=repetition.pk, curated_id=curated.pk, author=OPERATOR, why="w")
    purging.purge(scope=Scope(memory_ids=[curated.pk]), author=OPERATOR, reason="asked for")
    repetition.refresh_from_db()
    assert repetition.repeats_id is None


def test_d25_an_answer_that_comes_after_its_messages_were_purged_is_not_kept(
    server: ModelServer,
    tell: Tell,
) -> None:
    session = tell(f"We call it {CANARY}.", "Hello.")
    server.script(model_server.memories([item("name", f"It is {CANARY}.", [1])]))

    def at(point: str) -> None:
        if point == "call.after":
            message = Message.objects.get(uid="u1")
            purging.purge(scope=Scope(message_ids=[message.pk]), author=OPERATOR, reason="asked for")

    faults.install(at)
    try:
        distilling.run_cursor(cursor_id=cursor_of(session).pk)
    finally:
        faults.install(None)
    assert where() == set()
    row = DistillationPass.objects.get()
    assert (row.outcome, row.failure, row.answer) == ("failed", "erased", "")
    assert row.output_tokens > 0, "what was paid stays on record"


def test_a_purge_needs_an_operator_a_reason_and_something_to_purge(agent: Agent) -> None:
    with pytest.raises(NotAllowed):
        purging.purge(scope=Scope(agent_ids=[agent.pk]), author=Author(kind="agent", name="ada"), reason="r")
    with pytest.raises(Invalid):
        purging.purge(scope=Scope(agent_ids=[agent.pk]), author=OPERATOR, reason=" ")
    with pytest.raises(Invalid):
        purging.purge(scope=Scope(), author=OPERATOR, reason="r")
    with pytest.raises(NotFound):
        purging.purge(scope=Scope(session_ids=[0]), author=OPERATOR, reason="r")


def test_m5_a_certificate_is_never_changed_or_deleted(agent: Agent) -> None:
    purging.purge(scope=Scope(agent_ids=[agent.pk]), author=OPERATOR, reason="r")
    assert Activity.objects.get(act="purge").who == "operator:olga"
    for change in (lambda: Certificate.objects.update(who="x"), lambda: Certificate.objects.all().delete()):
        with pytest.raises(DatabaseError), transaction.atomic():
            change()


def test_m5_the_history_refuses_deletion_outside_a_purge_also_after_one(full: Session) -> None:
    purging.purge(scope=Scope(message_ids=[Message.objects.filter(uid="u1").get().pk]), author=OPERATOR, reason="r")
    with pytest.raises(DatabaseError, match="by a purge alone"), transaction.atomic():
        MemoryEvent.objects.all().delete()


def test_t4_an_agent_is_deleted_only_when_it_is_said_what_becomes_of_what_it_has(
    full: Session,
    agent: Agent,
) -> None:
    with pytest.raises(Invalid, match="say to whom they go"):
        purging.delete_agent(agent_id=agent.pk, author=OPERATOR, reason="left")
    assert where() >= EVERYWHERE
    token = tokens.issue(space=agent.space, agent=agent)
    certificate = purging.delete_agent(agent_id=agent.pk, author=OPERATOR, reason="left", erase=True)
    assert where() == set()
    assert not Agent.objects.filter(pk=agent.pk).exists()
    assert certificate.counts["agentmemory_token"] == 1
    assert tokens.authenticate(token.plain) is None


def test_m5_after_a_purge_of_a_message_the_record_of_its_session_names_nothing(agent: Agent) -> None:
    message = MessageFactory.create(session=SessionFactory.create(agent=agent))
    activity.record("skip", who="operator:olga", target=message.session, reason=f"for {CANARY}")
    purging.purge(scope=Scope(message_ids=[message.pk]), author=OPERATOR, reason="r")
    assert Activity.objects.get(act="skip").reason == ""


def test_m5_answers_that_are_kept_go_with_an_agent_that_is_deleted(agent: Agent) -> None:
    token = tokens.issue(space=agent.space).token
    StoredAnswer.objects.create(token=token, key="k", digest="d", status=200, body=b"x", created_at=timezone.now())
    purging.delete_agent(agent_id=agent.pk, author=OPERATOR, reason="left", erase=True)
    assert not StoredAnswer.objects.exists()


def test_t4_an_heir_gets_all_of_it_and_nothing_becomes_shared(full: Session, agent: Agent) -> None:
    heir = AgentFactory.create(space=agent.space, handle="grace")
    before = Memory.objects.count()
    purging.delete_agent(agent_id=agent.pk, author=OPERATOR, reason="left", heir=heir)
    assert Memory.objects.filter(owner=heir).count() == before
    assert not Memory.objects.filter(owner=None).exists()
    assert not MemoryEvent.objects.exclude(owner=heir).exists()
    assert Session.objects.get().agent_id == heir.pk
    assert {Cursor.objects.get().agent_id, *DistillationPass.objects.values_list("agent", flat=True)} == {heir.pk}


def test_t4_an_heir_with_the_same_keys_is_refused_and_nothing_changes(full: Session, agent: Agent) -> None:
    heir = AgentFactory.create(space=agent.space, handle="grace")
    Memory.objects.create(
        space=agent.space, owner=heir, origin="distilled", key=f"{CANARY}-key", content="x", created_by="pass:9"
    )
    with pytest.raises(Invalid, match="same keys"):
        purging.delete_agent(agent_id=agent.pk, author=OPERATOR, reason="left", heir=heir)
    with pytest.raises(Invalid, match="same space"):
        purging.delete_agent(agent_id=agent.pk, author=OPERATOR, reason="left", heir=AgentFactory.create())
    gone = AgentFactory.create(space=agent.space, archived_at=timezone.now())
    for nobody in (agent, gone):
        with pytest.raises(Invalid, match="another agent"):
            purging.delete_agent(agent_id=agent.pk, author=OPERATOR, reason="left", heir=nobody)
    assert Memory.objects.filter(owner=agent).count() == 2


def test_t4_an_agent_without_anything_is_just_deleted(agent: Agent) -> None:
    purging.delete_agent(agent_id=agent.pk, author=OPERATOR, reason="made by mistake")
    assert not Agent.objects.exists()


def test_everything_about_something_is_found_wherever_it_is_kept(full: Session) -> None:
    found = finding.everything(CANARY.upper())
    assert {row.kind for row in found.rows if not row.stays} == {"memory", "message", "session", "pass", "input"}
    assert {row.pk for row in found.rows if row.kind == "memory"} == set(Memory.objects.values_list("pk", flat=True))
    scope = Scope(
        memory_ids=[row.pk for row in found.rows if row.kind == "memory"],
        message_ids=[row.pk for row in found.rows if row.kind == "message"],
        pass_ids=[row.pk for row in found.rows if row.kind == "pass"],
        input_ids=[row.pk for row in found.rows if row.kind == "input"],
    )
    purging.purge(scope=scope, author=OPERATOR, reason="asked for")
    left = finding.everything(CANARY).rows
    assert {row.kind for row in left if not row.stays} == {"session"}
    assert {row.kind for row in left if row.stays} == {
        "pass by its session",
        "event of a session",
        "link between messages",
    }


def test_what_is_found_is_bounded(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "MOST", 2)
    caller = Caller(space=agent.space, agent=agent)
    for n in range(4):
        memories.put(caller=caller, draft=memories.Draft(key=f"k{n}", content=f"About {CANARY}."))
    found = finding.everything(CANARY)
    assert (len(found.rows), found.cut) == (2, ("memory",))
    with pytest.raises(Invalid):
        finding.everything("ab")


def test_the_command_previews_and_purges(full: Session, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["--space", "acme", "--agent", "ada", "--session", full.name]
    call_command("purge", *call, "--dry-run")
    told = capsys.readouterr().out
    assert "agentmemory_message: " in told
    assert "Nothing was erased" in told
    with pytest.raises(CommandError, match="reason"):
        call_command("purge", *call)
    assert where() >= EVERYWHERE
    call_command("purge", *call, "--reason", "asked for")
    assert where() == set()
    assert "certificate" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--everything", "--session", "S"], "all that the agent has"),
        (["--everything", "--memory", "M"], "all that the agent has"),
        (["--delete-agent", "--everything", "--session", "S"], "all that the agent has"),
        (["--memory", "M", "--message", "u1"], "--message needs --session"),
    ],
)
def test_m5_the_command_erases_neither_more_nor_less_than_its_words_say(
    full: Session, agent: Agent, options: list[str], told: str
) -> None:
    named = {"S": full.name, "M": str(Memory.objects.filter(owner=agent).values_list("pk", flat=True)[0])}
    call = [named.get(option, option) for option in options]
    with pytest.raises(CommandError, match=told):
        call_command("purge", "--space", "acme", "--agent", "ada", *call, "--reason", "asked for")
    assert where() >= EVERYWHERE


def test_t4_the_command_deletes_an_agent_only_with_a_choice(full: Session, agent: Agent) -> None:
    call = ["--space", "acme", "--agent", "ada", "--delete-agent", "--reason", "left"]
    with pytest.raises(CommandError, match="say to whom"):
        call_command("purge", *call)
    AgentFactory.create(space=agent.space, handle="grace")
    call_command("purge", *call, "--heir", "grace")
    assert not Agent.objects.filter(handle="ada").exists()
