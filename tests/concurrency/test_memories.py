"""Races for memories: each with its guard, and once without it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection

from agentmemory.authorship import Author
from agentmemory.callers import Caller
from agentmemory.errors import AgentMemoryError, NotFound, VersionMoved
from agentmemory.models import Agent, Memory, MemoryAccess, MemoryEvent, MemoryUsage
from agentmemory.services import curation, distilled, memories, upkeep
from agentmemory.services.memories import Draft, Expected, Written
from tests.factories import AgentFactory, MemoryFactory, MessageFactory, SessionFactory
from tests.support import races

pytestmark = pytest.mark.django_db(transaction=True)

OPERATOR = Author(kind="operator", name="olga")


@pytest.fixture
def ada(db: None) -> Agent:
    return AgentFactory.create(handle="ada")


def of(agent: Agent) -> Caller:
    return Caller(space=agent.space, agent=agent)


def put(agent: Agent, content: str = "One.", key: str = "k", expected: Expected = memories.ANYTHING) -> Written:
    return memories.put(caller=of(agent), draft=Draft(key=key, content=content), expected=expected)


def sql(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def meet_at_the_insert(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let so many writers of a new key all find nothing before any of them inserts."""
    meeting, insert = threading.Barrier(number), memories._insert_unless_taken
    met = threading.local()

    def wait_and_insert(values: dict[str, object]) -> Memory | None:
        if not getattr(met, "once", False):
            met.once = True
            meeting.wait(timeout=30)
        return insert(values)

    monkeypatch.setattr(memories, "_insert_unless_taken", wait_and_insert)


@contextmanager
def without_the_unique_index() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexdef FROM pg_indexes WHERE indexname = 'memory_key_unique'")
        definition = cursor.fetchone()[0]
    sql("DROP INDEX memory_key_unique")
    try:
        yield
    finally:
        sql("TRUNCATE agentmemory_memory CASCADE")
        sql(definition)


def test_m5_two_writes_of_a_new_key_at_once_give_one_memory_with_two_versions(
    ada: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    meet_at_the_insert(monkeypatch, 2)
    done = races.together(lambda: put(ada, "One."), lambda: put(ada, "Two."))
    memory = Memory.objects.get()
    assert memory.version == 2
    assert sorted(written.created for written in done) == [False, True]
    assert list(MemoryEvent.objects.order_by("pgh_id").values_list("version", flat=True)) == [1, 2]
    assert memory.content == next(written.memory.content for written in done if not written.created)


def test_m5_without_the_index_the_same_two_writes_give_two_memories(
    ada: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    meet_at_the_insert(monkeypatch, 2)
    with without_the_unique_index():
        races.together(lambda: put(ada, "One."), lambda: put(ada, "Two."))
        assert Memory.objects.count() == 2


def test_m5_of_two_that_create_only_one_does(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    meet_at_the_insert(monkeypatch, 2)

    def create(content: str) -> str:
        try:
            put(ada, content, expected=Expected(there=False))
        except VersionMoved:
            return "moved"
        return "created"

    assert sorted(races.together(lambda: create("One."), lambda: create("Two."))) == ["created", "moved"]
    assert Memory.objects.get().version == 1


def test_m5_of_many_that_change_one_version_only_one_does(ada: Agent) -> None:
    put(ada)

    def change(number: int) -> bool:
        try:
            put(ada, f"By {number}.", expected=Expected(versions=[1]))
        except VersionMoved:
            return False
        return True

    assert sum(races.together(*[lambda n=n: change(n) for n in range(6)])) == 1
    assert Memory.objects.get().version == 2


def test_m5_many_writes_at_once_are_as_many_versions(ada: Agent) -> None:
    races.together(*[lambda n=n: [put(ada, f"{n}.{m}") for m in range(5)] for n in range(6)])
    memory = Memory.objects.get()
    assert memory.version == 30
    versions = MemoryEvent.objects.order_by("pgh_id").values_list("version", "content")
    assert [version for version, _ in versions] == list(range(1, 31))
    assert versions.last()[1] == memory.content


def test_m1_writing_and_deleting_one_key_at_once_never_fails(ada: Agent) -> None:
    def write() -> None:
        for n in range(15):
            put(ada, f"{n}")

    def remove() -> None:
        for _ in range(15):
            memories.delete(caller=of(ada), key="k")

    races.together(write, remove, write, remove)
    assert Memory.objects.kept().count() <= 1


def test_m1_a_key_that_was_taken_and_freed_meanwhile_is_written_anew(
    ada: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else takes the key after we looked, and deletes it before we look again."""
    insert, times = memories._insert_unless_taken, iter(range(10))

    def beaten(values: dict[str, object]) -> Memory | None:
        return None if next(times) == 0 else insert(values)

    monkeypatch.setattr(memories, "_insert_unless_taken", beaten)
    assert put(ada).created


def test_m1_of_two_deletions_at_once_each_takes_another_row(ada: Agent) -> None:
    for origin in ("curated", "distilled"):
        MemoryFactory.create(owner=ada, origin=origin, key="k")

    def remove() -> object:
        return memories.delete(caller=of(ada), key="k")

    assert len({*races.together(remove, remove)} - {None}) == 2
    assert not Memory.objects.kept().exists()


def test_d10_two_passes_that_write_one_key_at_once_give_one_memory(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    meet_at_the_insert(monkeypatch, 2)
    messages = [MessageFactory.create(session=SessionFactory.create(agent=ada)) for _ in range(2)]

    def distil(at: int) -> distilled.Outcome:
        finding = distilled.Finding(
            key="k",
            content=f"By {at}.",
            tags=[],
            context="",
            sources=[distilled.Source(message=messages[at], quote="", verified=False)],
        )
        return distilled.write(session=messages[at].session, finding=finding, pass_id=at)

    done = races.together(lambda: distil(0), lambda: distil(1))
    assert sorted(outcome.action for outcome in done) == ["created", "updated"]
    assert Memory.objects.get().version == 2


def test_m5_two_operators_that_promote_at_once_make_one_memory(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """They wait for each other at the distilled memory; an agent that writes the key meets them at the insert."""
    meet_at_the_insert(monkeypatch, 2)
    found = MemoryFactory.create(owner=ada, origin="distilled", key="k", content="Distilled.")

    def promote() -> object:
        return curation.promote(memory_id=found.pk, author=OPERATOR, reason="right").pk

    made = races.together(promote, lambda: put(ada).memory.pk)
    assert len(set(made)) == 1
    assert Memory.objects.get(origin="curated").version == 2


def test_m5_sharing_while_the_shared_key_is_written_ends_in_one_of_the_two(ada: Agent) -> None:
    other = AgentFactory.create(space=ada.space)
    for n in range(5):
        private = put(ada, key=f"k{n}").memory

        def share(pk: object = private.pk) -> str:
            try:
                curation.share(memory_id=pk, author=OPERATOR, reason="useful")  # type: ignore[arg-type]
            except AgentMemoryError as error:
                return str(error)
            return "shared"

        def write(key: str = f"k{n}") -> str:
            draft = Draft(key=key, content="Other.", scope="space")
            return "created" if memories.put(caller=of(other), draft=draft).created else "updated"

        assert races.together(share, write) in (
            ["shared", "updated"],
            ["There is another memory with this key.", "created"],
        )
        assert Memory.objects.filter(key=f"k{n}", owner=None).count() == 1


def test_m6_many_reads_at_once_neither_wait_nor_bloat_and_each_is_counted(ada: Agent) -> None:
    memory = put(ada).memory
    before = _place(memory)

    def read() -> None:
        for _ in range(25):
            memories.get(caller=of(ada), key="k")

    # A writer in the midst of its work: nobody who reads waits for it.
    writer = races.Paused(lambda: put(ada, "Two."))
    races.together(*[read] * 8)
    writer.go_on()
    assert MemoryAccess.objects.count() == 200
    upkeep.add_up_accesses()
    assert MemoryUsage.objects.get().count == 200
    # One version more by the writer, and none by two hundred readers.
    assert before != _place(memory)
    assert MemoryEvent.objects.filter(pgh_obj_id=memory.pk).count() == 2


def test_m6_readers_would_wait_for_a_writer_that_locks_the_whole_row(ada: Agent) -> None:
    """The other way to lock, which the one above does without: for it a reader's mark on the row is in the way."""
    memory = put(ada).memory

    def lock() -> None:
        list(Memory.objects.filter(pk=memory.pk).select_for_update())

    writer = races.Paused(lock)
    reader = races.Actor(lambda: memories.get(caller=of(ada), key="k"))
    assert reader.waits()
    assert not MemoryAccess.objects.exists()
    writer.go_on()
    races.outcome(reader)
    assert MemoryAccess.objects.count() == 1


def test_m6_adding_up_beside_reads_counts_every_use_once(ada: Agent) -> None:
    keys = [put(ada, key=f"k{n}").memory.key for n in range(3)]
    seen: list[int] = []

    def read() -> None:
        for n in range(30):
            memories.get(caller=of(ada), key=keys[n % 3])

    def add_up() -> None:
        for _ in range(15):
            upkeep.add_up_accesses()

    def look() -> None:
        for _ in range(30):
            found = memories.listing(caller=of(ada))
            seen.append(sum(memory.access_count for memory in found))  # type: ignore[attr-defined]

    races.together(read, read, read, add_up, add_up, add_up, look)
    # No reader's snapshot ever lost or doubled a use: what was counted only grows.
    assert seen == sorted(seen)
    upkeep.add_up_accesses()
    assert sum(MemoryUsage.objects.values_list("count", flat=True)) == 90
    assert not MemoryAccess.objects.exists()


def test_m5_a_write_that_is_late_meets_its_condition_again(ada: Agent) -> None:
    """A condition is looked at once the other writer is done, not before."""
    put(ada)

    def late() -> str:
        try:
            put(ada, "Late.", expected=Expected(versions=[1]))
        except VersionMoved:
            return "moved"
        return "written"

    first = races.Paused(lambda: put(ada, "First."))
    second = races.Actor(late)
    assert second.waits()
    first.go_on()
    assert races.outcome(second) == "moved"
    assert Memory.objects.get().content == "First."


def test_m4_a_private_memory_of_another_is_never_waited_for(ada: Agent) -> None:
    """Not even by the time it takes can one learn that another has the same key."""
    grace = AgentFactory.create(space=ada.space)
    put(grace)

    writer = races.Paused(lambda: put(grace, "Hers."))
    assert races.outcome(races.Actor(lambda: put(ada, "His."))).created
    assert races.outcome(races.Actor(lambda: memories.delete(caller=of(ada), key="k"))) is not None
    writer.go_on()
    with pytest.raises(NotFound):
        memories.get(caller=of(ada), key="k")


def test_m2_an_author_is_named_in_its_own_transaction_alone(ada: Agent) -> None:
    """Two writers side by side, on two connections: neither is put down to the other."""
    one, other = put(ada, key="one").memory, put(ada, key="other").memory

    def edit(memory: Memory, name: str) -> None:
        for n in range(10):
            curation.edit(memory_id=memory.pk, author=Author(kind="operator", name=name), reason=name, content=f"{n}")

    races.together(lambda: edit(one, "olga"), lambda: edit(other, "otto"))
    for memory, name in ((one, "olga"), (other, "otto")):
        contexts = MemoryEvent.objects.filter(pgh_obj_id=memory.pk, version__gt=1).values_list("pgh_context", flat=True)
        assert {(each["author"], each["reason"]) for each in contexts} == {(f"operator:{name}", name)}


def _place(memory: Memory) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT ctid::text FROM agentmemory_memory WHERE id = %s", [memory.pk])
        return str(cursor.fetchone()[0])
