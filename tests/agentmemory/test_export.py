"""Memories out and in again: the round trip gives the same lines, a repetition changes nothing (T1, M2, M5)."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import InternalError, connection
from django.test.utils import CaptureQueriesContext

from agentmemory.authorship import Author, acting, purging
from agentmemory.callers import Caller
from agentmemory.errors import Invalid
from agentmemory.models import Activity, Agent, Consolidation, Memory, MemoryEvent, MemorySource, Space
from agentmemory.services import curation, exporting, importing_memories, memories, merging, spaces
from agentmemory.services.importing_memories import Problem, Report, Wanted
from tests.factories import AgentFactory, MemoryFactory, MessageFactory, SessionFactory
from tests.support import standby

pytestmark = pytest.mark.django_db
OPERATOR = Author(kind="operator", name="olga")
SCRIPTS = "Ünïcode ✓ 漢字 العربية 👩‍👩‍👧 \u202eRTL"


@pytest.fixture
def agent() -> Agent:
    return AgentFactory.create(handle="ada", space__slug="acme")


def write(agent: Agent, key: str, content: str, **more: Any) -> Memory:
    caller = Caller(space=agent.space, agent=agent)
    return memories.put(caller=caller, draft=memories.Draft(key=key, content=content, **more)).memory


def distilled(agent: Agent, key: str, content: str, *seqs: int) -> Memory:
    memory = MemoryFactory.create(
        owner=agent, space=agent.space, origin="distilled", key=key, content=content, created_by="pass:1"
    )
    session = agent.sessions.first() or SessionFactory.create(agent=agent, name="s1")
    for seq in seqs:
        message = session.messages.filter(seq=seq).first() or MessageFactory.create(session=session, seq=seq)
        MemorySource.objects.create(
            space=agent.space,
            memory=memory,
            session=session,
            message=message,
            session_name="s1",
            uid=message.uid,
            seq=seq,
            quote="as it was said",
            verified=True,
        )
    return memory


@pytest.fixture
def full(agent: Agent) -> Agent:
    """Memories in every state there is."""
    other = spaces.ensure_agent(agent.space, "grace")
    write(agent, "language", SCRIPTS, tags=["ünï"], context="around it", importance=0.7, pinned=True)
    write(agent, "language", f"{SCRIPTS} again")
    write(agent, "shared", "For all.", scope="space")
    write(other, "theirs", "Of another.")
    gone = write(agent, "deleted", "Gone.")
    curation.remove(memory_id=gone.pk, author=OPERATOR, reason="wrong")
    write(agent, "deleted", "There again.")
    withdrawn = distilled(agent, "withdrawn", "Not any more.", 1)
    curation.withdraw(memory_id=withdrawn.pk, author=OPERATOR, reason="no longer true")
    first, second, third = (distilled(agent, key, f"{key} says it.", n) for n, key in enumerate("abc", start=1))
    merging.merge(memory_id=first.pk, into_id=second.pk, author=OPERATOR, why="w", reason="r")
    merging.merge(memory_id=second.pk, into_id=third.pk, author=OPERATOR, why="w", reason="r")
    repetition = distilled(agent, "repetition", "For all.", 4)
    merging.link(memory_id=repetition.pk, curated_id=Memory.objects.get(key="shared").pk, author=OPERATOR, why="w")
    given = write(other, "given", "Was another's.")
    curation.give_back(memory_id=given.pk, agent=agent, author=OPERATOR, reason="r")
    memories.get(caller=Caller(space=agent.space, agent=agent), key="language")
    return agent


def exported(space: Space, agent: Agent | None = None) -> list[str]:
    return [json.dumps(line) for line in exporting.lines(space=space, agent=agent)]


def take_in(space: Space, lines: list[str], **more: Any) -> tuple[Report, list[Problem]]:
    problems: list[Problem] = []
    wanted = Wanted(space=space, author=OPERATOR, **more)
    return importing_memories.take_in(wanted=wanted, lines=lines, on_problem=problems.append), problems


def emptied(space: Space) -> None:
    """Take all memories out of the database, as if it were another one."""
    with purging(), acting(OPERATOR):
        Consolidation.objects.all().delete()
        MemorySource.objects.all().delete()
        Memory.objects.update(merged_into=None, repeats=None)
        for memory in Memory.objects.all():
            memory.accesses.all().delete()
        Memory.objects.all().delete()
        MemoryEvent.objects.all().delete()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM agentmemory_memoryusage")


def test_an_export_taken_in_again_gives_the_same_lines(full: Agent) -> None:
    before = exported(full.space)
    emptied(full.space)
    report, problems = take_in(full.space, before)
    assert (report.created, problems) == (len(before) - 1, [])
    assert exported(full.space) == before


def test_what_is_taken_in_works_as_before(full: Agent) -> None:
    before = exported(full.space)
    emptied(full.space)
    take_in(full.space, before)
    caller = Caller(space=full.space, agent=full)
    assert memories.get(caller=caller, key="a").key == "c"
    restored = Memory.objects.get(key="language")
    curation.restore_version(memory_id=restored.pk, version=1, author=OPERATOR, reason="r")
    assert memories.get(caller=caller, key="language").content == SCRIPTS
    merging.unmerge(memory_id=Memory.objects.get(key="a").pk, author=OPERATOR, reason="r")
    assert sorted(MemorySource.objects.filter(memory__key="b").values_list("seq", flat=True)) == [2]
    assert MemorySource.objects.filter(memory__key="b").get().message is not None


def test_a_repetition_changes_nothing(full: Agent) -> None:
    before = exported(full.space)
    report, problems = take_in(full.space, before)
    assert (report.known, report.created, problems) == (len(before) - 1, 0, [])
    assert exported(full.space) == before


def test_ids_that_another_space_has_become_others_and_the_same_each_time(full: Agent) -> None:
    lines = exported(full.space)
    copy = spaces.ensure("copy")
    assert take_in(copy, lines)[0].created == len(lines) - 1
    again = exported(copy)
    assert take_in(copy, lines)[0].known == len(lines) - 1
    assert exported(copy) == again
    assert exported(full.space) == lines
    ada = spaces.get_agent(copy, "ada")
    assert memories.get(caller=Caller(space=copy, agent=ada), key="a").key == "c"
    assert not Memory.objects.filter(space=copy).exclude(owner=None).exclude(owner__space=copy).exists()


def test_t1_an_agents_export_has_what_it_owns_alone(full: Agent) -> None:
    lines = [json.loads(line) for line in exported(full.space, full)]
    assert {line["owner"] for line in lines[1:]} == {"ada"}
    copy = spaces.ensure("copy")
    texts = [json.dumps(line) for line in lines]
    assert take_in(copy, texts)[1] == []
    mine = exported(copy, spaces.get_agent(copy, "ada"))
    assert len(mine) == len(texts)


def test_m2_a_curated_memory_that_says_something_else_is_kept_and_told(full: Agent) -> None:
    lines = exported(full.space)
    write(full, "language", "Changed since.")
    report, problems = take_in(full.space, lines)
    assert (report.kept, report.known) == (1, len(lines) - 2)
    assert (problems[0].kind, problems[0].key) == ("kept", "language")
    assert "curated memory" in problems[0].why
    assert Memory.objects.get(key="language").content == "Changed since."
    report, problems = take_in(full.space, lines, replace=True)
    assert (report.replaced, problems) == (1, [])
    memory = Memory.objects.get(key="language")
    assert (memory.content, memory.version) == (f"{SCRIPTS} again", 4)
    event = MemoryEvent.objects.filter(pgh_obj_id=memory.pk).latest("pgh_id")
    assert event.pgh_context == {"author": "operator:olga", "reason": "imported"}


def test_one_line_that_is_refused_holds_up_none_of_the_others(full: Agent) -> None:
    header, *lines = exported(full.space)
    emptied(full.space)
    by_key = {json.loads(line)["key"]: json.loads(line) for line in lines}
    secret, long, survivor = by_key["theirs"], by_key["given"], by_key["c"]
    secret["content"] = "The token is ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    long["content"] = "x" * 10_001
    others = [line for line in lines if json.loads(line)["key"] not in {"theirs", "given", "c"}]
    report, problems = take_in(full.space, [header, json.dumps(secret), json.dumps(long), "{", "", *others])
    assert report.refused == 5, "those that went into the survivor, which is not there, too"
    assert report.created == len(others) - 2
    assert [problem.line for problem in problems][:3] == [2, 3, 4]
    assert "ghp_" not in "".join(problem.why for problem in problems)
    assert take_in(full.space, [header, json.dumps(secret)], keep_secrets=True)[0].created == 1
    assert take_in(full.space, [header, json.dumps(survivor), *others])[0].created == 3


def test_what_is_written_over_is_found_again(full: Agent) -> None:
    lines = exported(full.space)
    gone: dict[str, Any] = {"memory_id": Memory.objects.get(key="language").pk, "author": OPERATOR, "reason": "r"}
    curation.edit(**gone, content="Changed since.")
    curation.withdraw(**gone)
    assert take_in(full.space, lines, replace=True)[0].replaced == 1
    assert memories.get(caller=Caller(space=full.space, agent=full), key="language").origin == "curated"
    curation.remove(**gone)
    assert take_in(full.space, lines, replace=True)[0].replaced == 1
    assert memories.get(caller=Caller(space=full.space, agent=full), key="language").origin == "curated"


def test_d13_a_secret_in_an_earlier_version_is_refused_too(agent: Agent) -> None:
    write(agent, "k", "One.")
    write(agent, "k", "Two.")
    header, line = (json.loads(text) for text in exported(agent.space))
    emptied(agent.space)
    line["history"][0]["content"] = "The token is ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    assert take_in(agent.space, [json.dumps(header), json.dumps(line)])[0].refused == 1


def test_what_is_no_export_is_refused(agent: Agent) -> None:
    for first in ("", "{}", '{"format": "other"}', "[]", "no JSON"):
        with pytest.raises(Invalid):
            take_in(agent.space, [first])


@pytest.mark.django_db(transaction=True)
def test_what_another_import_took_in_meanwhile_is_known(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    write(agent, "k", "c")
    lines = exported(agent.space)
    emptied(agent.space)
    create, seen = importing_memories._create, []

    def other() -> None:
        seen.append(take_in(agent.space, lines)[0].created)
        connection.close()

    def beaten(*line: Any) -> None:
        monkeypatch.setattr(importing_memories, "_create", create)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        create(*line)

    monkeypatch.setattr(importing_memories, "_create", beaten)
    report, problems = take_in(agent.space, lines)
    assert seen == [1]
    assert (report.known, report.created, problems) == (1, 0, [])


@pytest.mark.django_db(transaction=True)
def test_a_database_that_takes_no_writes_is_no_fault_of_a_line(agent: Agent) -> None:
    write(agent, "k", "c")
    lines = exported(agent.space)
    emptied(agent.space)
    with standby.reads_alone(), pytest.raises(InternalError):
        take_in(agent.space, lines)


def test_a_line_without_history_begins_one(agent: Agent) -> None:
    write(agent, "k", "c")
    header, line = (json.loads(text) for text in exported(agent.space))
    emptied(agent.space)
    line["history"] = []
    take_in(agent.space, [json.dumps(header), json.dumps(line)])
    event = MemoryEvent.objects.get()
    assert event.pgh_context == {"author": "operator:olga", "reason": "imported"}


def test_memory_grows_not_with_the_number_of_lines(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read by a cursor of the server, piece by piece: the number of statements is that of the pieces."""
    monkeypatch.setattr(exporting, "AT_ONCE", 5)
    for n in range(20):
        write(agent, f"k{n}", f"Content {n}.")
    with CaptureQueriesContext(connection) as caught:
        lines = exporting.lines(space=agent.space)
        for _ in range(3):
            next(lines)
        few = len(caught)
        assert sum(1 for _ in lines) == 18
    assert few < len(caught) <= few + 3 * 5


def test_the_commands_write_and_read(full: Agent, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("export", "--space", "acme", "--agent", "ada")
    text = capsys.readouterr().out
    path = tmp_path / "memories.jsonl"
    path.write_text(text)
    call_command("import_memories", str(path), "--space", "copy")
    assert "created" in capsys.readouterr().out
    assert Activity.objects.get(act="import memories").detail["created"] == text.count("\n") - 1
    call_command("import_memories", str(path), "--space", "copy")
    assert "already known" in capsys.readouterr().out
    path.write_text(text + "{\n")
    with pytest.raises(CommandError, match="1 could not be taken in"):
        call_command("import_memories", str(path), "--space", "copy")
    with pytest.raises(CommandError, match="no export"):
        call_command("import_memories", __file__, "--space", "copy")
    path.write_text("")
    with pytest.raises(CommandError, match="no export"):
        call_command("import_memories", str(path), "--space", "copy")
