"""Memories on the real database: one row a place, nobody's word overwritten, every version kept (M1 to M6, M9)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.db.transaction import TransactionManagementError
from django.utils import timezone
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agentmemory import authorship
from agentmemory.authorship import Author
from agentmemory.callers import Caller
from agentmemory.errors import HoldsSecret, Invalid, NotFound, VersionMoved
from agentmemory.models import Agent, Memory, MemoryAccess, MemoryEvent
from agentmemory.services import curation, distilled, history, memories, upkeep
from agentmemory.services.memories import Draft, Expected
from tests.factories import AgentFactory, MemoryFactory, MessageFactory, SessionFactory

pytestmark = pytest.mark.django_db

OPERATOR = Author(kind="operator", name="olga")
PASS = Author(kind="pass", name="7")
SECRET = "sk-ant-api03-" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7" * 3


@pytest.fixture
def ada(db: None) -> Agent:
    return AgentFactory.create(handle="ada", space__slug="acme")


@pytest.fixture
def grace(ada: Agent) -> Agent:
    return AgentFactory.create(handle="grace", space=ada.space)


def of(agent: Agent) -> Caller:
    return Caller(space=agent.space, agent=agent)


def put(agent: Agent, key: str = "k", content: str = "One.", **values: Any) -> Memory:
    return memories.put(caller=of(agent), draft=Draft(key=key, content=content, **values)).memory


def distil(agent: Agent, key: str = "k", content: str = "Distilled.", name: str = "s") -> Memory:
    session = agent.sessions.filter(name=name).first() or SessionFactory.create(agent=agent, name=name)
    message = MessageFactory.create(session=session, seq=session.messages.count() + 1)
    finding = distilled.Finding(
        key=key,
        content=content,
        tags=[],
        context="",
        sources=[distilled.Source(message=message, quote="", verified=False)],
    )
    with transaction.atomic():
        return distilled.write(session=session, finding=finding, pass_id=7).memory


def sql(statement: str, *parameters: Any) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []


def _saved(memory: Memory, content: str) -> None:
    memory.content = content
    memory.save()


def events(memory: Memory) -> list[tuple[str, int, str]]:
    rows = MemoryEvent.objects.filter(pgh_obj_id=memory.pk).order_by("pgh_id")
    return [(row.pgh_label, row.version, row.content) for row in rows]


def authors(memory: Memory) -> list[str | None]:
    rows = MemoryEvent.objects.filter(pgh_obj_id=memory.pk).order_by("pgh_id")
    return [(row.pgh_context or {}).get("author") for row in rows]


@contextmanager
def without_trigger(like: str) -> Iterator[None]:
    """Take a trigger of memories out: what it alone forbids must be possible then."""
    names = sql("SELECT tgname, tgrelid::regclass::text FROM pg_trigger WHERE tgname LIKE %s", f"%{like}%")
    assert names, like
    sql("SET CONSTRAINTS ALL IMMEDIATE")
    for name, table in names:
        sql(f"ALTER TABLE {table} DISABLE TRIGGER {name}")
    yield
    for name, table in names:
        sql(f"ALTER TABLE {table} ENABLE TRIGGER {name}")


# M1


@pytest.mark.parametrize("shared", [False, True])
def test_m1_one_row_a_place_nobody_as_owner_included(ada: Agent, shared: bool) -> None:
    place = {"space": ada.space, "owner": None if shared else ada, "key": "k"}
    MemoryFactory.create(**place)
    with pytest.raises(IntegrityError, match="memory_key_unique"), transaction.atomic():
        MemoryFactory.create(**place)
    with pytest.raises(IntegrityError, match="memory_key_unique"), transaction.atomic():
        sql(
            "INSERT INTO agentmemory_memory (id, space_id, owner_id, origin, key, content, tags, context, importance,"
            " pinned, version, created_by, withdrawn_by, withdrawn_reason, edited_by)"
            " VALUES (%s, %s, %s, 'curated', 'k', 'x', '{}', '', 0.5, false, 1, '', '', '', '')",
            uuid.uuid4(), ada.space_id, None if shared else ada.pk,
        )  # fmt: skip


def test_m1_four_memories_of_one_key_live_side_by_side(ada: Agent, grace: Agent) -> None:
    for owner in (ada, grace, None):
        for origin in ("curated", "distilled"):
            MemoryFactory.create(space=ada.space, owner=owner, origin=origin, key="k", content=f"{owner} {origin}")
    assert Memory.objects.filter(key="k").count() == 6


def test_m1_a_key_is_what_it_is_letter_for_letter(ada: Agent) -> None:
    for key in ("Straße", "STRASSE", "strasse", "e\u0301", "\u00e9", "k", "K"):
        put(ada, key)
    assert Memory.objects.count() == 7


def test_m1_a_deleted_row_frees_its_key_and_a_new_one_begins(ada: Agent) -> None:
    first = put(ada)
    put(ada, content="Two.")
    assert memories.delete(caller=of(ada), key="k") == first.pk
    again = put(ada, content="Three.")
    assert (again.version, again.pk == first.pk) == (1, False)
    assert Memory.objects.filter(key="k").count() == 2


# M2


def _as_nobody(statement: str, memory: Memory) -> None:
    sql(statement.format(table="agentmemory_memory"), memory.pk)


AUTOMATIC = {
    "content": "UPDATE {table} SET content = 'Mine now.' WHERE id = %s",
    "key": "UPDATE {table} SET key = 'other' WHERE id = %s",
    "delete": "DELETE FROM {table} WHERE id = %s",
    "hide": "UPDATE {table} SET deleted_at = now() WHERE id = %s",
    "withdraw": "UPDATE {table} SET withdrawn_at = now() WHERE id = %s",
    "expire": "UPDATE {table} SET expires_at = now() WHERE id = %s",
    "share": "UPDATE {table} SET owner_id = NULL WHERE id = %s",
    "turn": "UPDATE {table} SET origin = 'distilled' WHERE id = %s",
    "tags": "UPDATE {table} SET tags = '{{x}}' WHERE id = %s",
    "context": "UPDATE {table} SET context = 'x' WHERE id = %s",
    "pinned": "UPDATE {table} SET pinned = true WHERE id = %s",
    "version": "UPDATE {table} SET version = version + 1 WHERE id = %s",
}


@pytest.mark.parametrize("act", AUTOMATIC)
@pytest.mark.parametrize("author", [None, PASS, authorship.SYSTEM, Author(kind="pass", name="agent:ada")])
def test_m2_nothing_automatic_touches_a_curated_memory(ada: Agent, act: str, author: Author | None) -> None:
    memory = put(ada)
    who = authorship.acting(author) if author else nullcontext()
    with pytest.raises(IntegrityError, match="a person or an agent alone"), transaction.atomic(), who:
        _as_nobody(AUTOMATIC[act], memory)
    memory.refresh_from_db()
    assert (memory.content, memory.version, memory.deleted_at) == ("One.", 1, None)


@pytest.mark.parametrize("act", AUTOMATIC)
def test_m2_without_the_trigger_it_could_be_done(ada: Agent, act: str) -> None:
    memory = put(ada)
    with without_trigger("curated_guard"):
        _as_nobody(AUTOMATIC[act], memory)
    assert not Memory.objects.filter(
        pk=memory.pk, content="One.", key="k", version=1, deleted_at=None, withdrawn_at=None, expires_at=None,
        owner=ada, origin="curated", tags=[], context="", pinned=False,
    ).exists()  # fmt: skip


def test_m2_the_orm_is_refused_like_everyone_else(ada: Agent) -> None:
    memory = put(ada)
    for act in (
        lambda: Memory.objects.filter(pk=memory.pk).update(content="Mine now."),
        lambda: Memory.objects.filter(pk=memory.pk).delete(),
        lambda: Memory.objects.bulk_update([Memory(pk=memory.pk, content="Mine now.")], ["content"]),
        lambda: memory.delete(),
    ):
        with pytest.raises(IntegrityError, match="a person or an agent alone"), transaction.atomic():
            act()
    memory = Memory.objects.get()
    assert memory.content == "One."


def test_m2_the_index_may_be_refreshed_by_anyone(ada: Agent) -> None:
    memory = put(ada)
    sql("UPDATE agentmemory_memory SET search = NULL WHERE id = %s", memory.pk)
    sql("UPDATE agentmemory_memory SET content = content WHERE id = %s", memory.pk)
    memory.refresh_from_db()
    assert (memory.content, memory.version) == ("One.", 1)
    assert events(memory) == [("written", 1, "One.")]


def test_m2_distilling_the_same_key_leaves_the_curated_memory(ada: Agent) -> None:
    curated = put(ada)
    found = distil(ada)
    curated.refresh_from_db()
    assert (curated.content, curated.version, found.pk == curated.pk) == ("One.", 1, False)


def test_m2_an_authorship_ends_with_its_block(ada: Agent) -> None:
    memory = put(ada)
    with transaction.atomic():
        with authorship.acting(of(ada).author):
            pass
        with pytest.raises(IntegrityError), transaction.atomic():
            _as_nobody(AUTOMATIC["content"], memory)


def test_m2_an_authorship_ends_also_where_its_block_fails(ada: Agent) -> None:
    memory = put(ada)
    with transaction.atomic():
        with pytest.raises(LookupError), transaction.atomic(), authorship.acting(of(ada).author):
            raise LookupError
        with pytest.raises(IntegrityError), transaction.atomic():
            _as_nobody(AUTOMATIC["content"], memory)


def test_m2_nothing_can_follow_a_failure_under_a_name_that_is_not_its_own(ada: Agent) -> None:
    """Where no savepoint lies around the block, the transaction ends with it, whoever catches the error."""
    memory = put(ada)

    def go_on_after_a_failure() -> None:
        with transaction.atomic():
            with suppress(LookupError), authorship.acting(of(ada).author):
                raise LookupError
            _as_nobody(AUTOMATIC["content"], memory)

    with pytest.raises(TransactionManagementError):
        go_on_after_a_failure()
    memory.refresh_from_db()
    assert memory.content == "One."


def test_m2_one_within_another_speaks_for_itself_and_then_the_other_again(ada: Agent) -> None:
    memory = put(ada)
    with transaction.atomic(), authorship.acting(of(ada).author):
        with pytest.raises(IntegrityError), transaction.atomic(), authorship.acting(PASS):
            _as_nobody(AUTOMATIC["content"], memory)
        with authorship.acting(PASS):
            other = MemoryFactory.create(owner=ada, origin="distilled", key="d")
        Memory.objects.filter(pk=memory.pk).update(content="Two.")
    assert authors(other) == ["pass:7"]
    assert authors(memory) == ["agent:ada", "agent:ada"]


def test_m5_what_is_written_after_an_authorship_is_not_put_down_to_it(ada: Agent) -> None:
    with transaction.atomic():
        with authorship.acting(OPERATOR, reason="because"):
            MemoryFactory.create(owner=ada, key="by olga")
        later = MemoryFactory.create(owner=ada, key="by nobody")
    assert authors(later) == [None]


# M3


SCOPES = {"mine": {"ada"}, "space": {"shared"}, None: {"ada", "shared"}}


@pytest.fixture
def everyones(ada: Agent, grace: Agent) -> None:
    """One key, kept by two agents and by all."""
    put(ada, content="ada")
    put(grace, content="grace")
    put(ada, content="shared", scope="space")


@pytest.mark.parametrize("scope", SCOPES)
def test_m3_an_agent_sees_one_set_in_read_list_and_delete(ada: Agent, everyones: None, scope: Any) -> None:
    caller = of(ada)
    assert {m.content for m in memories.listing(caller=caller, scope=scope)} == SCOPES[scope]
    seen = []
    for _ in SCOPES[scope]:
        seen.append(memories.get(caller=caller, key="k", scope=scope).content)
        assert memories.delete(caller=caller, key="k", scope=scope) is not None
    assert set(seen) == SCOPES[scope]
    assert memories.delete(caller=caller, key="k", scope=scope) is None
    with pytest.raises(NotFound):
        memories.get(caller=caller, key="k", scope=scope)
    assert {m.content for m in Memory.objects.kept()} == {"ada", "grace", "shared"} - SCOPES[scope]


@pytest.mark.parametrize(
    ("scope", "found"),
    [("mine", {"ada"}), ("space", {"shared"}), (None, {"shared"}), ("all", {"ada", "grace", "shared"})],
)
def test_m3_a_space_token_sees_one_set_in_read_list_and_delete(
    ada: Agent, everyones: None, scope: Any, found: set[str]
) -> None:
    caller = Caller(space=ada.space, name="backup")
    owner = ada if scope == "mine" else None
    assert {m.content for m in memories.listing(caller=caller, scope=scope, owner=owner)} == found
    seen = set()
    for _ in found:
        seen.add(memories.get(caller=caller, key="k", scope=scope, owner=owner).content)
        memories.delete(caller=caller, key="k", scope=scope, owner=owner)
    assert seen == found
    assert memories.delete(caller=caller, key="k", scope=scope, owner=owner) is None


def test_m3_an_agent_has_no_scope_of_all(ada: Agent, everyones: None) -> None:
    assert {m.content for m in memories.listing(caller=of(ada), scope="all")} == {"ada", "shared"}
    with pytest.raises(Invalid):
        put(ada, scope="all")


def test_m3_a_read_prefers_own_curated_own_distilled_shared_curated_shared_distilled(ada: Agent) -> None:
    for owner in (None, ada):
        for origin in ("distilled", "curated"):
            MemoryFactory.create(space=ada.space, owner=owner, origin=origin, key="k", content=f"{owner}, {origin}")
    seen = []
    for _ in range(4):
        seen.append(memories.get(caller=of(ada), key="k").content)
        memories.delete(caller=of(ada), key="k")
    assert seen == ["ada, curated", "ada, distilled", "None, curated", "None, distilled"]


def test_m3_a_space_token_names_the_owner_of_what_it_writes_as_mine(ada: Agent) -> None:
    caller = Caller(space=ada.space, name="backup")
    with pytest.raises(Invalid, match="names the owner"):
        memories.put(caller=caller, draft=Draft(key="k", content="c", scope="mine"))
    written = memories.put(caller=caller, draft=Draft(key="k", content="c", scope="mine", owner=ada)).memory
    assert (written.owner, written.created_by) == (ada, "space:backup")
    assert memories.put(caller=caller, draft=Draft(key="k", content="c")).memory.owner is None


# M4


def test_m4_anothers_private_memory_is_not_there(ada: Agent, grace: Agent) -> None:
    memory = put(grace, "secret plan", "Hers.")
    caller = of(ada)
    with pytest.raises(NotFound) as absent:
        memories.get(caller=caller, key="nothing at all")
    with pytest.raises(NotFound) as private:
        memories.get(caller=caller, key="secret plan")
    assert str(absent.value) == str(private.value)
    assert memories.delete(caller=caller, key="secret plan") is None
    assert list(memories.listing(caller=caller)) == []
    with pytest.raises(NotFound):
        history.versions(caller=caller, memory_id=memory.pk)
    written = memories.put(
        caller=caller, draft=Draft(key="secret plan", content="His."), expected=Expected(there=False)
    )
    assert written.created
    assert memories.get(caller=of(grace), key="secret plan").content == "Hers."


def test_m4_the_private_past_of_a_shared_memory_stays_private(ada: Agent, grace: Agent) -> None:
    memory = put(grace, content="Private draft.")
    curation.share(memory_id=memory.pk, author=OPERATOR, reason="useful to all")
    curation.edit(memory_id=memory.pk, author=OPERATOR, reason="wording", content="Public text.")
    seen = [row.content for row in history.versions(caller=of(ada), memory_id=memory.pk)]
    assert seen == ["Private draft.", "Public text."]
    assert [row.owner for row in history.versions(caller=of(ada), memory_id=memory.pk)] == [None, None]
    curation.give_back(memory_id=memory.pk, agent=grace, author=OPERATOR, reason="after all")
    with pytest.raises(NotFound):
        history.versions(caller=of(ada), memory_id=memory.pk)
    with pytest.raises(NotFound):
        memories.get(caller=of(ada), key="k")


def test_m4_another_spaces_memory_is_not_there(ada: Agent) -> None:
    other = AgentFactory.create(handle="ada")
    memory = put(other, scope="space")
    assert list(memories.listing(caller=of(ada))) == []
    with pytest.raises(NotFound):
        history.versions(caller=Caller(space=ada.space), memory_id=memory.pk)


# M5


def test_m5_a_write_over_another_keeps_its_creator_and_its_time(ada: Agent, grace: Agent) -> None:
    first = put(ada, scope="space", tags=["a"], context="ctx", importance=0.9, pinned=True)
    second = put(grace, content="Two.", scope="space")
    assert (second.pk, second.version, second.created_by) == (first.pk, 2, "agent:ada")
    assert second.created_at == first.created_at
    assert second.updated_at > first.updated_at
    assert (second.tags, second.context, second.importance, second.pinned) == (["a"], "ctx", 0.9, True)
    assert put(ada, content="Three.", scope="space", tags=[]).tags == []
    assert events(first) == [("written", 1, "One."), ("changed", 2, "Two."), ("changed", 3, "Three.")]
    assert authors(first) == ["agent:ada", "agent:grace", "agent:ada"]


@pytest.mark.parametrize(
    "change",
    [
        lambda m: Memory.objects.filter(pk=m.pk).update(content="Two."),
        lambda m: Memory.objects.bulk_update([Memory(pk=m.pk, content="Two.")], ["content"]),
        lambda m: sql("UPDATE agentmemory_memory SET content = 'Two.' WHERE id = %s", m.pk),
        lambda m: sql(
            "INSERT INTO agentmemory_memory SELECT * FROM agentmemory_memory WHERE id = %s"
            " ON CONFLICT (id) DO UPDATE SET content = 'Two.'",
            m.pk,
        ),
        lambda m: sql(
            "MERGE INTO agentmemory_memory t USING (SELECT %s::uuid AS id) s ON t.id = s.id"
            " WHEN MATCHED THEN UPDATE SET content = 'Two.'",
            m.pk,
        ),
        lambda m: _saved(m, "Two."),
    ],
    ids=["update()", "bulk_update", "UPDATE", "ON CONFLICT", "MERGE", "save()"],
)
def test_m5_no_change_escapes_the_history(ada: Agent, change: Callable[[Memory], Any]) -> None:
    memory = MemoryFactory.create(owner=ada, origin="distilled", content="One.")
    change(memory)
    assert [content for _, _, content in events(memory)] == ["One.", "Two."]


def test_m5_no_insert_and_no_deletion_escapes_the_history(ada: Agent) -> None:
    rows = [
        Memory(space=ada.space, owner=ada, origin="distilled", key=f"b{n}", content=f"{n}", created_by="x")
        for n in range(50)
    ]
    Memory.objects.bulk_create(rows)
    assert all(events(row) == [("written", 1, row.content)] for row in rows)
    Memory.objects.filter(pk=rows[0].pk).delete()
    sql("DELETE FROM agentmemory_memory WHERE id = %s", rows[1].pk)
    for row in rows[:2]:
        assert [label for label, _, _ in events(row)] == ["written", "purged"]


def test_m5_without_the_trigger_a_change_would_escape(ada: Agent) -> None:
    memory = MemoryFactory.create(owner=ada, origin="distilled", content="One.")
    with without_trigger("changed_update"):
        Memory.objects.filter(pk=memory.pk).update(content="Two.")
    assert len(events(memory)) == 1


@pytest.mark.parametrize(
    "statement",
    ["UPDATE agentmemory_memoryevent SET content = 'It never was.'", "DELETE FROM agentmemory_memoryevent"],
)
def test_m5_history_is_neither_changed_nor_deleted(ada: Agent, statement: str) -> None:
    put(ada)
    for author in (OPERATOR, PASS):
        with pytest.raises(DatabaseError), transaction.atomic(), authorship.acting(author):
            sql(statement)
    with pytest.raises(DatabaseError), transaction.atomic():
        MemoryEvent.objects.all().delete()
    with pytest.raises(DatabaseError), transaction.atomic():
        MemoryEvent.objects.update(content="It never was.")
    assert [row.content for row in MemoryEvent.objects.all()] == ["One."]


def test_m5_only_within_a_purge_is_history_erased(ada: Agent) -> None:
    memory = put(ada, content="Too much said.")
    with authorship.purging():
        MemoryEvent.objects.update(content="[redacted]")
        Memory.objects.filter(pk=memory.pk).delete()
        MemoryEvent.objects.filter(pgh_label="purged").delete()
    assert [row.content for row in MemoryEvent.objects.all()] == ["[redacted]"]
    with pytest.raises(DatabaseError), transaction.atomic():
        MemoryEvent.objects.all().delete()
    with suppress(LookupError), transaction.atomic(), authorship.purging():
        raise LookupError
    with pytest.raises(DatabaseError), transaction.atomic():
        MemoryEvent.objects.update(content="Nothing.")


def test_m5_any_version_can_be_restored(ada: Agent) -> None:
    memory = put(ada, tags=["first"], importance=0.1)
    put(ada, content="Two.", tags=["second"], importance=0.9)
    put(ada, key="another", content="Another's first version.")
    restored = curation.restore_version(memory_id=memory.pk, version=1, author=OPERATOR, reason="the first was right")
    assert (restored.content, restored.tags, restored.importance, restored.version) == ("One.", ["first"], 0.1, 3)
    assert events(memory)[-1] == ("changed", 3, "One.")
    last = MemoryEvent.objects.latest("pgh_id").pgh_context
    assert (last["author"], last["reason"]) == ("operator:olga", "the first was right")
    with pytest.raises(NotFound):
        curation.restore_version(memory_id=memory.pk, version=9, author=OPERATOR, reason="")


def test_m5_a_deleted_memory_can_be_brought_back_unless_its_key_is_taken(ada: Agent) -> None:
    memory = put(ada)
    memories.delete(caller=of(ada), key="k")
    curation.undelete(memory_id=memory.pk, author=OPERATOR, reason="asked for")
    assert memories.get(caller=of(ada), key="k").pk == memory.pk
    memories.delete(caller=of(ada), key="k")
    put(ada, content="Another.")
    with pytest.raises(Invalid, match="another memory"):
        curation.undelete(memory_id=memory.pk, author=OPERATOR, reason="asked for")
    assert memories.get(caller=of(ada), key="k").content == "Another."


def test_m5_promoting_writes_a_curated_memory_and_keeps_the_distilled_one(ada: Agent) -> None:
    found = distil(ada, content="From the talk.")
    made = curation.promote(memory_id=found.pk, author=OPERATOR, reason="right")
    assert (made.origin, made.owner, made.content, made.created_by) == (
        "curated", ada, "From the talk.", "operator:olga",
    )  # fmt: skip
    assert Memory.objects.kept().filter(key="k").count() == 2
    with pytest.raises(Invalid):
        curation.promote(memory_id=made.pk, author=OPERATOR, reason="again")


def test_m5_promoting_over_a_curated_memory_is_its_next_version(ada: Agent) -> None:
    curated = put(ada)
    found = distil(ada, content="From the talk.")
    made = curation.promote(memory_id=found.pk, author=OPERATOR, reason="right")
    assert (made.pk, made.version, made.content) == (curated.pk, 2, "From the talk.")
    assert made.created_by == "agent:ada"


@pytest.mark.parametrize("gone", ["expired", "withdrawn"])
def test_m5_promoting_over_a_memory_that_is_left_out_brings_it_back(ada: Agent, gone: str) -> None:
    curated = put(ada)
    found = distil(ada, content="From the talk.")
    if gone == "expired":
        curation.edit(memory_id=curated.pk, author=OPERATOR, reason="", expires_at=timezone.now())
    else:
        curation.withdraw(memory_id=curated.pk, author=OPERATOR, reason="wrong")
    curation.promote(memory_id=found.pk, author=OPERATOR, reason="right")
    assert memories.get(caller=of(ada), key="k", origin="curated").content == "From the talk."


def test_m5_sharing_and_giving_back_keep_the_row_and_refuse_a_taken_key(ada: Agent, grace: Agent) -> None:
    memory = put(ada)
    shared = curation.share(memory_id=memory.pk, author=OPERATOR, reason="useful")
    assert (shared.owner, shared.version, shared.pk) == (None, 2, memory.pk)
    back = curation.give_back(memory_id=memory.pk, agent=grace, author=OPERATOR, reason="hers")
    assert (back.owner, back.version) == (grace, 3)
    put(ada)
    with pytest.raises(Invalid):
        curation.give_back(memory_id=memory.pk, agent=ada, author=OPERATOR, reason="")
    put(ada, scope="space")
    with pytest.raises(Invalid):
        curation.share(memory_id=memory.pk, author=OPERATOR, reason="")
    with pytest.raises(Invalid):
        curation.give_back(memory_id=memory.pk, agent=AgentFactory.create(), author=OPERATOR, reason="")


def test_m5_a_withdrawn_memory_is_left_out_and_reinstated_as_it_was(ada: Agent) -> None:
    memory = put(ada)
    curation.withdraw(memory_id=memory.pk, author=OPERATOR, reason="wrong")
    assert list(memories.listing(caller=of(ada))) == []
    with pytest.raises(NotFound):
        memories.get(caller=of(ada), key="k")
    curation.reinstate(memory_id=memory.pk, author=OPERATOR, reason="right after all")
    assert memories.get(caller=of(ada), key="k").content == "One."
    assert authors(memory) == ["agent:ada", "operator:olga", "operator:olga"]


def test_m5_a_person_edits_a_distilled_memory_and_no_pass_goes_over_it(ada: Agent) -> None:
    found = distil(ada)
    curation.edit(memory_id=found.pk, author=OPERATOR, reason="wording", content="Better.")
    with pytest.raises(Invalid, match="by hand"):
        distil(ada, content="Worse.")
    found.refresh_from_db()
    assert found.content == "Better."


def test_m5_a_person_withdraws_a_distilled_memory_and_no_pass_brings_it_back(ada: Agent) -> None:
    found = distil(ada)
    curation.withdraw(memory_id=found.pk, author=OPERATOR, reason="wrong")
    with pytest.raises(Invalid, match="withdrew"):
        distil(ada)
    found.refresh_from_db()
    assert found.withdrawn_at is not None


def test_m5_a_refused_act_leaves_no_version_and_no_record(ada: Agent) -> None:
    memory = put(ada)
    put(ada, scope="space")
    before = len(events(memory))
    with pytest.raises(Invalid):
        curation.share(memory_id=memory.pk, author=OPERATOR, reason="")
    with pytest.raises(Invalid):
        curation.edit(memory_id=memory.pk, author=OPERATOR, reason="", content=" ")
    memory.refresh_from_db()
    assert (memory.version, len(events(memory))) == (1, before)
    assert sql("SELECT count(*) FROM agentmemory_activity") == [(0,)]


# M6


def test_m6_a_read_answers_with_the_count_before_it(ada: Agent) -> None:
    memory = put(ada)
    assert memory.access_count == 0  # type: ignore[attr-defined]
    for expected in range(5):
        read: Any = memories.get(caller=of(ada), key="k")
        assert read.access_count == expected
        assert (read.last_accessed_at is None) == (expected == 0)
        if expected == 2:
            upkeep.add_up_accesses()
    listed: Any = memories.listing(caller=of(ada)).get()
    assert listed.access_count == 5
    assert put(ada, content="Two.").access_count == 5  # type: ignore[attr-defined]


def test_m6_a_read_touches_nothing_of_the_memory(ada: Agent) -> None:
    memory = put(ada)
    row = "SELECT ctid::text, updated_at, version, search::text FROM agentmemory_memory WHERE id = %s"
    before = sql(row, memory.pk)
    for _ in range(3):
        memories.get(caller=of(ada), key="k")
    upkeep.add_up_accesses()
    memories.get(caller=of(ada), key="k")
    assert sql(row, memory.pk) == before
    assert len(events(memory)) == 1


def test_m6_what_is_looked_through_or_deleted_counts_nothing(ada: Agent) -> None:
    put(ada)
    list(memories.listing(caller=of(ada)))
    memories.put_many(caller=of(ada), drafts=[Draft(key="k", content="Two.")])
    with pytest.raises(NotFound):
        memories.get(caller=of(ada), key="elsewhere")
    memories.delete(caller=of(ada), key="k")
    assert not MemoryAccess.objects.exists()


def test_m6_an_access_goes_with_its_memory(ada: Agent) -> None:
    memory = put(ada)
    memories.get(caller=of(ada), key="k")
    upkeep.add_up_accesses()
    memories.get(caller=of(ada), key="k")
    with authorship.acting(OPERATOR):
        Memory.objects.filter(pk=memory.pk).delete()
    assert upkeep.add_up_accesses() == 0
    assert sql("SELECT count(*) FROM agentmemory_memoryusage") == [(0,)]


# M9


def test_m9_an_expired_memory_is_left_out_unchanged_and_can_be_restored(ada: Agent) -> None:
    memory = put(ada, expires_at=timezone.now() + timedelta(hours=1))
    caller = of(ada)
    assert memories.get(caller=caller, key="k").pk == memory.pk
    curation.edit(memory_id=memory.pk, author=OPERATOR, reason="", expires_at=timezone.now() - timedelta(seconds=1))
    with pytest.raises(NotFound):
        memories.get(caller=caller, key="k")
    assert list(memories.listing(caller=caller)) == []
    assert memories.delete(caller=caller, key="k") is None
    memory.refresh_from_db()
    assert (memory.content, memory.deleted_at) == ("One.", None)
    curation.edit(memory_id=memory.pk, author=OPERATOR, reason="", expires_at=None)
    assert memories.get(caller=caller, key="k").pk == memory.pk


def test_m9_writing_over_an_expired_memory_lets_it_live_again(ada: Agent) -> None:
    first = put(ada, expires_at=timezone.now() - timedelta(seconds=1))
    again = put(ada, content="Two.")
    assert (again.pk, again.version, again.expires_at) == (first.pk, 2, None)
    assert memories.get(caller=of(ada), key="k").content == "Two."


def test_m9_what_nobody_can_see_is_not_there_for_a_condition(ada: Agent) -> None:
    """Else a client that reads 404 could never create, and learned what it may not see."""
    put(ada, expires_at=timezone.now() - timedelta(seconds=1))
    with pytest.raises(VersionMoved):
        memories.put(caller=of(ada), draft=Draft(key="k", content="Two."), expected=Expected(versions=[1]))
    with pytest.raises(VersionMoved):
        memories.put(caller=of(ada), draft=Draft(key="k", content="Two."), expected=Expected(there=True))
    written = memories.put(caller=of(ada), draft=Draft(key="k", content="Two."), expected=Expected(there=False))
    assert memories.get(caller=of(ada), key="k").content == "Two."
    assert written.memory.version == 2


# Limits


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("key", {"key": "k" * 201}),
        ("key", {"key": " "}),
        ("key", {"key": ""}),
        ("key", {"key": "distilled:k"}),
        ("key", {"key": "a\nb"}),
        ("key", {"key": "a\x7fb"}),
        ("content", {"content": "c" * 10_001}),
        ("content", {"content": " \n\t"}),
        ("context", {"context": "c" * 4_001}),
        ("tags", {"tags": [f"t{n}" for n in range(51)]}),
        ("tags", {"tags": ["t" * 51]}),
        ("importance", {"importance": 1.01}),
        ("importance", {"importance": -0.01}),
        ("importance", {"importance": float("nan")}),
        *[
            (field, {field: [bad] if field == "tags" else bad})
            for field in ("key", "content", "context", "tags")
            for bad in ("a\0b", "a\ud800b", "a\udfffb")
        ],
    ],
)
def test_over_the_limit_is_refused_and_never_cut(ada: Agent, field: str, values: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as refusal:
        memories.put(caller=of(ada), draft=Draft(**{"key": "k", "content": "c", **values}))
    assert refusal.value.field == field
    assert not Memory.objects.exists()


def test_at_the_limit_everything_is_kept(ada: Agent) -> None:
    astral = "\U0001f98a"
    memory = put(
        ada,
        "k" * 199 + astral,
        astral * 10_000,
        context=astral * 4_000,
        tags=[f"{n:02}" + astral * 48 for n in range(50)],
        importance=1,
    )
    memory.refresh_from_db()
    assert (len(memory.key), len(memory.content), len(memory.context), len(memory.tags)) == (200, 10_000, 4_000, 50)
    assert memories.get(caller=of(ada), key="k" * 199 + astral).pk == memory.pk


@pytest.mark.parametrize(
    ("column", "value"),
    [("content", "c" * 10_001), ("content", ""), ("context", "c" * 4_001), ("importance", 1.5), ("version", 0)],
)
def test_the_database_holds_the_limits_too(ada: Agent, column: str, value: Any) -> None:
    memory = MemoryFactory.create(owner=ada, origin="distilled")
    with pytest.raises(DatabaseError), transaction.atomic():
        sql(f"UPDATE agentmemory_memory SET {column} = %s WHERE id = %s", value, memory.pk)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=200)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)
@given(content=texts, tag=texts.map(lambda text: text[:50]), context=texts)
@example(content="\ufeffbom", tag="\u202e", context="\U000e0001")
@example(content="e\u0301 \u00e9", tag="\u2028", context="\x1f\x85")
@example(content="\U0010ffff\ufffe\uffff", tag="ⅷ", context="﷽" * 200)
@example(content="\\x00 \\u0000 '\"; --", tag="{a,b}", context="%s %(a)s $1")
@example(content="'" * 200, tag='"\\"', context="\\" * 200)
def test_any_other_unicode_round_trips(ada: Agent, content: str, tag: str, context: str) -> None:
    draft = Draft(key="k", content=f"x{content}x", tags=[f"{tag}"], context=context)
    memories.put(caller=of(ada), draft=draft, keep_secrets=True)
    read = memories.get(caller=of(ada), key="k")
    assert read.content == f"x{content}x"
    assert read.tags == ([tag.strip()] if tag.strip() else [])
    assert read.context == context.strip()
    event = MemoryEvent.objects.latest("pgh_id")
    assert (event.content, event.tags, event.context) == (read.content, read.tags, read.context)


printable = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=200).filter(
    lambda key: bool(key.strip()) and not key.strip().startswith("distilled:")
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)
@given(key=printable)
@example(key="k" + "\U0001f468\u200d\U0001f469\u200d\U0001f467")
@example(key="%00 ../ \\ ? # &")
def test_any_printable_key_round_trips(ada: Agent, key: str) -> None:
    written = memories.put(caller=of(ada), draft=Draft(key=key, content="c"), keep_secrets=True).memory
    assert written.key == key.strip()
    assert memories.get(caller=of(ada), key=key).pk == written.pk
    assert memories.delete(caller=of(ada), key=key) == written.pk


# Conditions


@pytest.mark.parametrize(
    ("expected", "there", "holds"),
    [
        (Expected(), False, True),
        (Expected(), True, True),
        (Expected(there=False), False, True),
        (Expected(there=False), True, False),
        (Expected(there=True), False, False),
        (Expected(there=True), True, True),
        (Expected(versions=[1]), False, False),
        (Expected(versions=[1]), True, True),
        (Expected(versions=[2, 3]), True, False),
        (Expected(versions=[2, 1]), True, True),
        (Expected(versions=[]), True, False),
    ],
)
def test_a_condition_is_looked_at_under_the_lock(ada: Agent, expected: Expected, there: bool, holds: bool) -> None:
    if there:
        put(ada)
    if holds:
        memories.put(caller=of(ada), draft=Draft(key="k", content="Two."), expected=expected)
        assert memories.get(caller=of(ada), key="k").content == "Two."
        return
    with pytest.raises(VersionMoved):
        memories.put(caller=of(ada), draft=Draft(key="k", content="Two."), expected=expected)
    assert [m.content for m in Memory.objects.all()] == (["One."] if there else [])
    with pytest.raises(VersionMoved):
        memories.delete(caller=of(ada), key="k", expected=expected)


def test_a_condition_looks_at_the_place_that_is_written(ada: Agent) -> None:
    """A shared memory of the same key is no hindrance for one's own."""
    put(ada, scope="space")
    written = memories.put(caller=of(ada), draft=Draft(key="k", content="Mine."), expected=Expected(there=False))
    assert written.created


# Secrets


@pytest.mark.parametrize("field", ["key", "content", "context", "tags"])
def test_d13_a_secret_is_refused_wherever_it_stands_unless_it_is_kept(ada: Agent, field: str) -> None:
    secret = SECRET[:48] if field == "tags" else SECRET
    values: dict[str, Any] = {"key": "k", "content": "c", field: [secret] if field == "tags" else secret}
    with pytest.raises(HoldsSecret) as refusal:
        memories.put(caller=of(ada), draft=Draft(**values))
    assert refusal.value.kinds
    assert secret not in str(refusal.value)
    assert not Memory.objects.exists()
    kept = memories.put(caller=of(ada), draft=Draft(**values), keep_secrets=True).memory
    assert getattr(kept, field) == values[field]


# Batches


def test_a_batch_writes_what_it_can_in_order(ada: Agent) -> None:
    drafts = [
        Draft(key="b", content="1"),
        Draft(key="", content="2"),
        Draft(key="a", content="3"),
        Draft(key="b", content="4"),
        Draft(key="a\0", content="5"),
        Draft(key="c", content=SECRET),
    ]
    items = memories.put_many(caller=of(ada), drafts=drafts)
    assert [item.draft for item in items] == drafts
    assert [item.written is not None for item in items] == [True, False, True, True, False, False]
    assert {m.key: (m.content, m.version) for m in Memory.objects.all()} == {"a": ("3", 1), "b": ("4", 2)}
