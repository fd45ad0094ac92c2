"""Spaces, tokens, archives: what is bounded by what, and held by the database itself (T1 to T4)."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.db import IntegrityError, connection, models, transaction
from django.db.models import RestrictedError
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agentmemory.callers import Caller
from agentmemory.errors import Invalid, NotFound
from agentmemory.models import (
    Agent,
    Consolidation,
    Memory,
    MemorySource,
    Message,
    MessageEdge,
    Session,
    Space,
    Token,
)
from agentmemory.services import memories, sessions, spaces, tokens
from agentmemory.services.memories import Draft
from distillation.models import Cursor, DistillationPass, Quarantine
from tests.factories import AgentFactory, MemoryFactory, MessageFactory, SessionFactory, SpaceFactory

pytestmark = pytest.mark.django_db

APPS = ("agentmemory", "distillation", "sessions_exec")
# What a row can belong to a space through: each has a composite key (id, space) to point at.
BOUND = (Agent, Session, Message, Memory)


def _bound_references() -> list[tuple[str, str, str]]:
    """Every column that names an agent, a session, a message or a memory, in a table that names a space, too."""
    found = []
    for model in apps.get_models(include_auto_created=True):
        fields = {field.name: field for field in model._meta.local_fields}
        if model._meta.app_label not in APPS or not model._meta.managed or "space" not in fields:
            continue
        # History names rows that may be gone: it has no keys at all, and is written by triggers alone.
        if model._meta.model_name == "memoryevent":
            continue
        for field in fields.values():
            if isinstance(field, models.ForeignKey) and field.related_model in BOUND:
                found.append((model._meta.db_table, str(field.column), field.related_model._meta.db_table))
    return sorted(found)


def _composite_keys() -> set[tuple[str, str, str]]:
    """Foreign keys of (column, space_id) to (id, space_id), as the database knows them: table, column, target."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT con.conrelid::regclass::text, con.confrelid::regclass::text,
                   array_agg(a.attname ORDER BY k.at), array_agg(b.attname ORDER BY k.at)
            FROM pg_constraint con
            CROSS JOIN LATERAL unnest(con.conkey, con.confkey) WITH ORDINALITY AS k (mine, theirs, at)
            JOIN pg_attribute a ON a.attrelid = con.conrelid AND a.attnum = k.mine
            JOIN pg_attribute b ON b.attrelid = con.confrelid AND b.attnum = k.theirs
            WHERE con.contype = 'f' AND con.convalidated
            GROUP BY con.oid, con.conrelid, con.confrelid
            """
        )
        rows = cursor.fetchall()
    return {
        (table, mine[0], target)
        for table, target, mine, theirs in rows
        if mine[1:] == ["space_id"] and theirs == ["id", "space_id"]
    }


def test_t1_every_table_that_names_an_owner_a_session_or_a_message_names_its_space_with_it() -> None:
    references = _bound_references()
    assert len(references) >= 13
    assert [each for each in references if each not in _composite_keys()] == []


def test_t1_every_other_table_belongs_to_a_space_through_its_row() -> None:
    """A table without a space is of the whole installation, or hangs on one row that has a space."""
    unbound = {
        model._meta.label
        for model in apps.get_models()
        if model._meta.app_label in APPS and "space" not in {field.name for field in model._meta.local_fields}
    }
    for label in sorted(unbound - {"agentmemory.Space", "agentmemory.Provider", "agentmemory.LoginTries"}):
        model = apps.get_model(label)
        if model._meta.app_label == "sessions_exec" and label.rpartition(".")[2] in {"TaskRun", "Heartbeat", "Tick"}:
            continue
        owners = [f for f in model._meta.local_fields if isinstance(f, models.ForeignKey)]
        assert owners, f"{label} belongs to nothing"
        assert all(not f.null and f.related_model is not None for f in owners), label
        assert any("space" in {g.name for g in f.related_model._meta.local_fields} for f in owners), label


def _message(session: Session) -> Message:
    return MessageFactory.create(session=session)


def _cursor(session: Session) -> Cursor:
    return Cursor.objects.create(session=session, space=session.space, agent=session.agent)


def _source(session: Session) -> MemorySource:
    return MemorySource.objects.create(
        space=session.space,
        memory=MemoryFactory.create(owner=session.agent, origin="distilled"),
        session=session,
        message=_message(session),
        session_name=session.name,
        uid="m",
        seq=1,
    )


def _pass(session: Session) -> DistillationPass:
    return DistillationPass.objects.create(
        space=session.space, agent=session.agent, session=session, session_name=session.name, epoch=1, start=0, end=1
    )


def _consolidation(session: Session) -> Consolidation:
    first, second = (MemoryFactory.create(owner=session.agent, origin="distilled") for _ in range(2))
    return Consolidation.objects.create(space=session.space, kind="merge", memory=first, other=second)


REFUSED = "_in_space|another one of its owner|a curated one of its owner"
"""What the keys say, and the trigger that looks before them whose the memory is that another is merged into."""

ROWS: dict[str, Callable[[Session], models.Model]] = {
    "agentmemory_token": lambda session: tokens.issue(space=session.space, agent=session.agent).token,
    "agentmemory_session": lambda session: session,
    "agentmemory_message": _message,
    "agentmemory_messageedge": lambda session: MessageEdge.objects.create(
        space=session.space, session=session, kind="retracts", target_uid="x"
    ),
    "agentmemory_memory": lambda session: MemoryFactory.create(owner=session.agent, origin="distilled"),
    "agentmemory_memorysource": _source,
    "agentmemory_consolidation": _consolidation,
    "distillation_cursor": _cursor,
    "distillation_distillationpass": _pass,
    "distillation_quarantine": lambda session: Quarantine.objects.create(
        space=session.space, agent=session.agent, cursor=_cursor(session), uid="m", seq=1
    ),
}


@pytest.mark.parametrize("table", ROWS)
def test_t1_a_row_refuses_the_owner_of_another_space_by_orm_and_by_sql(table: str) -> None:
    mine, theirs = SessionFactory.create(), SessionFactory.create()
    row = ROWS[table](mine)
    foreign = {
        "agentmemory_agent": theirs.agent_id,
        "agentmemory_session": theirs.pk,
        "agentmemory_message": _message(theirs).pk,
        "agentmemory_memory": MemoryFactory.create(owner=theirs.agent, origin="distilled").pk,
    }
    columns = [(column, target) for found, column, target in _bound_references() if found == table]
    assert columns
    for column, target in columns:
        with pytest.raises(IntegrityError, match=REFUSED), transaction.atomic():
            type(row)._base_manager.filter(pk=row.pk).update(**{column: foreign[target]})
        with pytest.raises(IntegrityError, match=REFUSED), transaction.atomic():
            _execute(f"UPDATE {table} SET {column} = %s WHERE id = %s", [foreign[target], row.pk])


@pytest.mark.parametrize("table", ROWS)
def test_t1_a_row_refuses_to_move_to_another_space_alone(table: str) -> None:
    row = ROWS[table](SessionFactory.create())
    elsewhere = SpaceFactory.create()
    with pytest.raises(IntegrityError), transaction.atomic():
        _execute(f"UPDATE {table} SET space_id = %s WHERE id = %s", [elsewhere.pk, row.pk])


def test_t1_every_table_with_a_composite_key_is_tried_above() -> None:
    """A new table joins `ROWS`, so that its keys are tried and not only counted."""
    tables = {table for table, _, _ in _bound_references()}
    covered = set(ROWS) | {table for table in tables if table.startswith("sessions_exec_")}
    assert tables <= covered


def test_t1_an_agent_with_rows_cannot_change_its_space() -> None:
    memory = MemoryFactory.create()
    assert memory.owner is not None
    with pytest.raises(IntegrityError, match="memory_owner_in_space"), transaction.atomic():
        Agent.objects.filter(pk=memory.owner.pk).update(space=SpaceFactory.create())


def test_t1_an_insert_across_spaces_is_refused_by_orm_and_by_sql() -> None:
    agent, elsewhere = AgentFactory.create(), SpaceFactory.create()
    with pytest.raises(IntegrityError, match="memory_owner_in_space"), transaction.atomic():
        Memory.objects.create(space=elsewhere, owner=agent, origin="curated", key="k", content="c", created_by="x:y")
    with pytest.raises(IntegrityError, match="session_agent_in_space"), transaction.atomic():
        Session.objects.create(space=elsewhere, agent=agent, name="s")
    with pytest.raises(IntegrityError, match="token_agent_in_space"), transaction.atomic():
        Token.objects.create(space=elsewhere, agent=agent, prefix="p", digest="d")


def test_t1_a_token_across_spaces_is_refused_with_a_word() -> None:
    with pytest.raises(Invalid, match="another space"):
        tokens.issue(space=SpaceFactory.create(), agent=AgentFactory.create())


def test_t3_a_token_is_kept_as_a_digest_and_shown_once() -> None:
    issued = tokens.issue(space=SpaceFactory.create(), name="laptop")
    row = Token.objects.values().get()
    assert re.fullmatch(r"amt_[a-z0-9]{8}_[A-Za-z0-9_-]{43}", issued.plain)
    secret = issued.plain.rpartition("_")[2] if issued.plain.count("_") == 2 else issued.plain[13:]
    assert not any(issued.plain in str(value) or secret in str(value) for value in row.values())
    assert row["digest"] == hashlib.sha256(issued.plain.encode()).hexdigest()
    assert issued.plain[4:12] == row["prefix"]
    assert issued.plain not in str(issued.token)


def test_t3_a_token_proves_its_space_and_agent() -> None:
    agent = AgentFactory.create()
    caller = tokens.authenticate(tokens.issue(space=agent.space, agent=agent).plain)
    assert caller is not None
    assert (caller.space, caller.agent) == (agent.space, agent)
    of_space = tokens.authenticate(tokens.issue(space=agent.space).plain)
    assert of_space is not None
    assert of_space.agent is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda plain: plain[:-1] + ("A" if plain[-1] != "A" else "B"),
        lambda plain: plain[:4] + ("a" if plain[4] != "a" else "b") + plain[5:],
        lambda plain: plain + "x",
        lambda plain: plain + "\n",
        lambda plain: " " + plain,
        lambda plain: plain.upper(),
        lambda plain: plain[:12],
        lambda plain: plain[4:],
        lambda plain: "",
        lambda plain: "\0",
        lambda plain: "\ud800" * 56,
        lambda plain: "ä" * 56,
        lambda plain: "amt_" + "%" * 8 + plain[12:],
    ],
)
def test_t3_whatever_is_not_the_token_proves_nothing(damage: Callable[[str], str]) -> None:
    plain = tokens.issue(space=SpaceFactory.create()).plain
    assert tokens.authenticate(damage(plain)) is None
    assert tokens.authenticate(plain) is not None


def test_t3_a_revoked_token_proves_nothing_and_keeps_the_first_time() -> None:
    issued = tokens.issue(space=SpaceFactory.create())
    tokens.revoke(token_id=issued.token.pk)
    assert tokens.authenticate(issued.plain) is None
    first = Token.objects.get().revoked_at
    tokens.revoke(token_id=issued.token.pk)
    assert Token.objects.get().revoked_at == first is not None


def test_t3_a_token_proves_nothing_after_its_expiry() -> None:
    issued = tokens.issue(space=SpaceFactory.create(), expires_at=timezone.now() + timedelta(hours=1))
    assert tokens.authenticate(issued.plain) is not None
    _execute(
        "UPDATE agentmemory_token SET created_at = created_at - interval '2 h', expires_at = now() - interval '1 s'"
    )
    assert tokens.authenticate(issued.plain) is None


def test_t3_an_expiry_lies_ahead() -> None:
    with pytest.raises(Invalid, match="ahead"):
        tokens.issue(space=SpaceFactory.create(), expires_at=timezone.now() - timedelta(seconds=1))
    token = tokens.issue(space=SpaceFactory.create()).token
    with pytest.raises(IntegrityError, match="token_expires_after_creation"), transaction.atomic():
        Token.objects.filter(pk=token.pk).update(expires_at=token.created_at)


def test_t3_the_last_use_is_noted_at_most_once_a_minute() -> None:
    issued = tokens.issue(space=SpaceFactory.create())
    assert issued.token.last_used_at is None
    tokens.authenticate(issued.plain)
    first = Token.objects.get().last_used_at
    assert first is not None
    with CaptureQueriesContext(connection) as queries:
        tokens.authenticate(issued.plain)
    assert Token.objects.get().last_used_at == first
    assert len(queries) == 2
    _execute("UPDATE agentmemory_token SET last_used_at = now() - interval '61 seconds'")
    tokens.authenticate(issued.plain)
    latest = Token.objects.get().last_used_at
    assert latest is not None
    assert latest >= first


def test_t3_a_failed_proof_is_no_use() -> None:
    issued = tokens.issue(space=SpaceFactory.create())
    tokens.authenticate(issued.plain[:-1] + ("A" if issued.plain[-1] != "A" else "B"))
    assert Token.objects.get().last_used_at is None


def test_t3_a_secret_is_compared_in_constant_time_also_where_its_prefix_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = tokens.issue(space=SpaceFactory.create()).plain
    compared: list[tuple[str, str]] = []

    def compare(one: str, other: str) -> bool:
        compared.append((one, other))
        return hmac.compare_digest(one, other)

    monkeypatch.setattr(tokens, "hmac", type("Watched", (), {"compare_digest": staticmethod(compare)}))
    for wrong in [plain[:-1] + "_", "amt_00000000_" + plain[13:], "no token at all"]:
        compared.clear()
        assert tokens.authenticate(wrong) is None
        assert [len(each) for pair in compared for each in pair] == [64, 64], wrong


def test_t3_the_shape_of_a_token_says_nothing_by_the_number_of_its_queries() -> None:
    plain = tokens.issue(space=SpaceFactory.create()).plain
    numbers = []
    for wrong in [plain[:-1] + ("A" if plain[-1] != "A" else "B"), "amt_00000000_" + plain[13:]]:
        with CaptureQueriesContext(connection) as queries:
            tokens.authenticate(wrong)
        numbers.append(len(queries))
    assert numbers == [1, 1]


def test_t4_an_archived_agent_is_stopped_and_comes_back_as_it_was() -> None:
    memory = MemoryFactory.create()
    agent = memory.owner
    assert agent is not None
    plain = tokens.issue(space=agent.space, agent=agent).plain
    beside = tokens.issue(space=agent.space).plain
    spaces.archive_agent(agent_id=agent.pk)
    assert tokens.authenticate(plain) is None
    assert tokens.authenticate(beside) is not None
    with pytest.raises(NotFound):
        spaces.get_agent(agent.space, agent.handle)
    assert Memory.objects.filter(pk=memory.pk).exists()
    spaces.restore_agent(agent_id=agent.pk)
    caller = tokens.authenticate(plain)
    assert caller is not None
    assert memories.get(caller=caller, key=memory.key).content == memory.content


def test_t4_an_archived_space_is_stopped_and_comes_back_as_it_was() -> None:
    memory = MemoryFactory.create()
    agent = memory.owner
    assert agent is not None
    plains = [tokens.issue(space=agent.space, agent=agent).plain, tokens.issue(space=agent.space).plain]
    spaces.archive(space_id=agent.space_id)
    assert [tokens.authenticate(plain) for plain in plains] == [None, None]
    with pytest.raises(NotFound):
        spaces.get(agent.space.slug)
    with pytest.raises(NotFound):
        spaces.get_agent(agent.space, agent.handle)
    assert list(Agent.objects.working()) == []
    spaces.restore(space_id=agent.space_id)
    assert None not in [tokens.authenticate(plain) for plain in plains]
    assert Memory.objects.get(pk=memory.pk).content == memory.content


def test_t4_archiving_twice_keeps_the_first_time() -> None:
    agent = AgentFactory.create()
    spaces.archive_agent(agent_id=agent.pk)
    spaces.archive(space_id=agent.space_id)
    first = (Agent.objects.get().archived_at, Space.objects.get().archived_at)
    with pytest.raises(Invalid, match="The agent is archived already"):
        spaces.archive_agent(agent_id=agent.pk)
    with pytest.raises(Invalid, match="The space is archived already"):
        spaces.archive(space_id=agent.space_id)
    assert (Agent.objects.get().archived_at, Space.objects.get().archived_at) == first


@pytest.mark.parametrize("row", [MemoryFactory, SessionFactory])
def test_t4_an_agent_that_owns_something_cannot_be_deleted(row: Any) -> None:
    owned = row.create()
    agent: Any = owned.owner if isinstance(owned, Memory) else owned.agent
    with pytest.raises(RestrictedError):
        agent.delete()
    with pytest.raises(IntegrityError), transaction.atomic():
        _execute("DELETE FROM agentmemory_agent WHERE id = %s", [agent.pk])
    with pytest.raises(RestrictedError):
        agent.space.delete()
    with pytest.raises(IntegrityError), transaction.atomic():
        _execute("DELETE FROM agentmemory_space WHERE id = %s", [agent.space_id])


def test_t4_no_deletion_makes_a_private_memory_a_shared_one() -> None:
    """Nowhere does the database or a model set an owner to nothing."""
    assert Memory._meta.get_field("owner").remote_field.on_delete is models.RESTRICT
    with connection.cursor() as cursor:
        cursor.execute("SELECT confdeltype FROM pg_constraint WHERE conname = 'memory_owner_in_space'")
        # "a" is NO ACTION, "n" would be SET NULL.
        assert cursor.fetchone() == ("a",)


def test_t4_a_deleted_memory_still_holds_its_owner() -> None:
    """It can be brought back, so its owner has to be there."""
    memory = MemoryFactory.create()
    agent = memory.owner
    assert agent is not None
    caller = Caller(space=agent.space, agent=agent)
    assert memories.delete(caller=caller, key=memory.key) == memory.pk
    with pytest.raises(RestrictedError):
        agent.delete()


def test_t4_an_agent_without_anything_can_be_deleted_with_its_tokens() -> None:
    agent = AgentFactory.create()
    plain = tokens.issue(space=agent.space, agent=agent).plain
    agent.delete()
    assert tokens.authenticate(plain) is None
    assert not Token.objects.exists()


def test_t2_a_space_token_sees_nothing_of_another_space() -> None:
    mine, theirs = (sessions.adopt(agent=AgentFactory.create(), name="s")[0] for _ in range(2))
    for owner in (mine.agent, theirs.agent, None):
        MemoryFactory.create(owner=owner, space=owner.space if owner else theirs.space)
    caller = Caller(space=mine.space)
    assert set(Session.objects.visible_to(caller)) == {mine}
    assert {cursor.session for cursor in Cursor.objects.visible_to(caller)} == {mine}
    assert {memory.owner for memory in Memory.objects.visible_to(caller, scope="all")} == {mine.agent}
    assert list(Memory.objects.visible_to(caller, scope="mine", owner=theirs.agent)) == []


def test_t2_a_handle_is_looked_up_in_the_callers_space_alone() -> None:
    one, other = AgentFactory.create(handle="ada"), AgentFactory.create(handle="ada")
    memories.put(caller=Caller(space=other.space, agent=other), draft=Draft(key="k", content="Of the other."))
    assert spaces.get_agent(one.space, "ada") == one
    with pytest.raises(NotFound):
        memories.get(caller=Caller(space=one.space, agent=one), key="k")


def _execute(sql: str, parameters: list[Any] | None = None) -> None:
    """Run a statement, and check at once what would be checked at the end of the transaction."""
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")
