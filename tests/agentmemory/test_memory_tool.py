"""The memory tool of models: files below `/memories`, which are memories."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest
from django.db import connections
from django.test import Client
from django.utils import timezone

from agentmemory.models import Memory, MemoryEvent
from agentmemory.services import memory_files, memory_paths
from tests.factories import AgentFactory, MemoryFactory
from tests.support.clients import Api, of_agent

pytestmark = pytest.mark.django_db


def use(api: Api, command: str, query: str = "", **given: Any) -> str:
    answer = api.post(f"/memory-tool{query}", {"command": command, **given})
    assert answer.status == 200, answer
    assert answer.body["is_error"] is False, answer.body["content"]
    return str(answer.body["content"])


def refused(api: Api, command: str, query: str = "", **given: Any) -> str:
    answer = api.post(f"/memory-tool{query}", {"command": command, **given})
    assert answer.status == 200, answer
    assert answer.body["is_error"] is True, answer.body["content"]
    return str(answer.body["content"])


def test_an_empty_store_is_an_empty_folder(api: Api) -> None:
    assert use(api, "view", path="/memories").splitlines()[1:] == ["0B\t/memories"]
    assert use(api, "view", path="/memories/") == use(api, "view", path="/memories")


def test_a_file_that_is_made_is_a_memory_and_a_memory_is_a_file(api: Api) -> None:
    assert use(api, "create", path="/memories/notes/a.txt", file_text="One.\nTwo.\n") == (
        "File created successfully at: /memories/notes/a.txt"
    )
    assert api.get("/memories/notes%2Fa.txt").body["content"] == "One.\nTwo."
    api.write("plan", "First.")
    assert use(api, "view", path="/memories/plan") == (
        "Here's the content of /memories/plan with line numbers:\n     1\tFirst."
    )
    assert api.get("/memories/plan").body["access_count"] == 1


def test_a_listing_is_two_levels_deep_with_sizes_and_without_what_is_hidden(api: Api) -> None:
    for key, content in {
        "a": "12345",
        "b/c": "é",
        "b/d/e": "x" * 1536,
        "b/d/f/g": "x" * 512,
        ".h": "x",
        "b/.i/j": "x",
    }.items():
        api.write(key, content)
    head, *lines = use(api, "view", path="/memories").splitlines()
    assert head == "Here're the files and directories up to 2 levels deep in /memories, excluding hidden items:"
    assert lines == [
        "2.0K\t/memories",
        "5B\t/memories/a",
        "2.0K\t/memories/b/",
        "2B\t/memories/b/c",
        "2K\t/memories/b/d/",
    ]
    assert use(api, "view", path="/memories/b/d").splitlines()[1:] == [
        "2K\t/memories/b/d", "1.5K\t/memories/b/d/e", "512B\t/memories/b/d/f/", "512B\t/memories/b/d/f/g",
    ]  # fmt: skip


def test_keys_that_are_no_paths_are_no_files(api: Api) -> None:
    for key in ("..", "a/../b", "/a", "a//b", "%2e%2e/x", "a\\b"):
        assert api.put(f"/memories/{quote(key, safe='')}", {"content": "x"}).status == 201
    assert use(api, "view", path="/memories").splitlines()[1:] == ["0B\t/memories"]


@pytest.mark.parametrize(
    ("view_range", "shown"),
    [([2, 3], "     2\tb\n     3\tc"), ([3, -1], "     3\tc\n     4\td"), ([4, 9], "     4\td"), ([1, 1], "     1\ta")],
)
def test_a_part_of_a_file_keeps_its_numbers(api: Api, view_range: list[int], shown: str) -> None:
    api.write("k", "a\nb\nc\nd")
    assert use(api, "view", path="/memories/k", view_range=view_range).partition("\n")[2] == shown


@pytest.mark.parametrize("view_range", [[0, 2], [5, 6], [3, 2], [-1, -1], [2, -2]])
def test_a_part_that_is_not_there_is_refused(api: Api, view_range: list[int]) -> None:
    api.write("k", "a\nb\nc\nd")
    assert "The file has 4 lines" in refused(api, "view", path="/memories/k", view_range=view_range)


def test_m5_every_edit_is_a_version_by_its_agent(api: Api) -> None:
    use(api, "create", path="/memories/k", file_text="a\nb\nc\nd\ne\nf")
    said = use(api, "str_replace", path="/memories/k", old_str="d\n", new_str="D\nD\n")
    assert said == "The memory file has been edited.\n     2\tb\n     3\tc\n     4\tD\n     5\tD\n     6\te"
    assert use(api, "insert", path="/memories/k", insert_line=0, insert_text="0\n") == (
        "The file /memories/k has been edited."
    )
    use(api, "insert", path="/memories/k", insert_line=8, insert_text="end")
    use(api, "rename", old_path="/memories/k", new_path="/memories/z/k")
    memory = Memory.objects.get()
    assert (memory.key, memory.content, memory.version) == ("z/k", "0\na\nb\nc\nD\nD\ne\nf\nend", 5)
    events = MemoryEvent.objects.filter(pgh_obj_id=memory.pk).order_by("pgh_id")
    assert [event.version for event in events] == [1, 2, 3, 4, 5]
    assert {(event.pgh_context or {})["author"] for event in events} == {"agent:ada"}
    use(api, "delete", path="/memories/z/k")
    assert api.get("/memories/z%2Fk").status == 404
    memory.refresh_from_db()
    assert memory.deleted_at is not None


def test_what_cannot_be_done_is_told_in_the_words_that_models_know(api: Api) -> None:
    api.write("k", "a b\na c")
    api.write("d/x", "x")
    gone = "Error: The path /memories/no does not exist"
    assert refused(api, "view", path="/memories/no").startswith(gone)
    assert refused(api, "create", path="/memories/k", file_text="x") == "Error: File /memories/k already exists"
    assert refused(api, "create", path="/memories/d", file_text="x") == "Error: File /memories/d already exists"
    assert (
        refused(api, "create", path="/memories/k/y", file_text="x") == "Error: /memories/k is a file, not a directory"
    )
    assert refused(api, "create", path="/memories", file_text="x") == "Error: /memories is a directory"
    assert refused(api, "str_replace", path="/memories/no", old_str="a", new_str="b").startswith(gone)
    assert "did not appear verbatim" in refused(api, "str_replace", path="/memories/k", old_str="z", new_str="b")
    assert "did not appear verbatim" in refused(api, "str_replace", path="/memories/k", old_str="", new_str="b")
    assert "in lines: 1, 2. Please" in refused(api, "str_replace", path="/memories/k", old_str="a ", new_str="b")
    assert refused(api, "insert", path="/memories/no", insert_line=0, insert_text="x").startswith(gone)
    assert "[0, 2]" in refused(api, "insert", path="/memories/k", insert_line=3, insert_text="x")
    assert refused(api, "delete", path="/memories/no") == gone
    assert "itself" in refused(api, "delete", path="/memories")
    assert refused(api, "rename", old_path="/memories/no", new_path="/memories/x") == gone
    assert "already exists" in refused(api, "rename", old_path="/memories/k", new_path="/memories/d/x")
    assert "already exists" in refused(api, "rename", old_path="/memories/k", new_path="/memories/d")
    assert "lies within" in refused(api, "rename", old_path="/memories/d", new_path="/memories/d/e")
    assert "itself" in refused(api, "rename", old_path="/memories", new_path="/memories/x")
    assert {row.key: row.version for row in Memory.objects.all()} == {"k": 1, "d/x": 1}


def test_the_rules_of_memories_hold_for_files(api: Api) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    api.write("k", "It is X.")
    assert "secret" in refused(api, "str_replace", path="/memories/k", old_str="X", new_str=secret)
    assert "secret" in refused(api, "create", path="/memories/s", file_text=secret)
    assert "10,000" in refused(api, "create", path="/memories/long", file_text="x" * 10_001)
    assert "blank" in refused(api, "create", path="/memories/empty", file_text="\n")
    assert "200" in refused(api, "create", path="/memories/" + "x" * 201, file_text="x")
    assert "distilled:" in refused(api, "create", path="/memories/distilled:x", file_text="x")
    assert "secret" in refused(api, "rename", old_path="/memories/k", new_path=f"/memories/{secret}")
    assert Memory.objects.count() == 1


@pytest.mark.parametrize(
    "path",
    [
        "", "/", "memories", "/memoriesx", "/memories/..", "/memories/../etc/passwd", "/memories/a/../../b",
        "/memories/./a", "/memories/%2e%2e/a", "/memories/%252e%252e%252fa", "/memories/..%2fa", "/memories/..\\a",
        "/memories/a\\..\\b", "/memories/\uff0e\uff0e/a",
        "/memories/%ef%bc%8e%ef%bc%8e/a", "/memories//a", "/memories/a//b", "/memories/ /a",
        "../memories/a", "/memories/%5c..%5ca", "/etc/passwd", "file:///memories/a",
    ],
)  # fmt: skip
def test_no_path_leads_out_of_the_folder(api: Api, path: str) -> None:
    assert "Path" in refused(api, "create", path=path, file_text="x")
    assert "Path" in refused(api, "rename", old_path="/memories/k", new_path=path)
    assert refused(api, "delete", path=path)
    assert not Memory.objects.exists()


def test_a_folder_is_renamed_and_deleted_with_all_that_is_in_it(api: Api) -> None:
    for key in ("d/a", "d/b/c", "da"):
        api.write(key, "x")
    use(api, "rename", old_path="/memories/d", new_path="/memories/e/f/")
    assert {row.key for row in Memory.objects.all()} == {"e/f/a", "e/f/b/c", "da"}
    use(api, "delete", path="/memories/e")
    assert {row.key for row in Memory.objects.kept()} == {"da"}


def test_a_folder_is_renamed_whole_or_not_at_all(api: Api) -> None:
    api.write("d/a", "x")
    api.write("d/" + "b" * 190, "x")
    assert "200" in refused(api, "rename", old_path="/memories/d", new_path="/memories/" + "e" * 20)
    assert {row.key[:3] for row in Memory.objects.all()} == {"d/a", "d/b"}


def test_a4_a_folder_has_a_bound(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentmemory.services.memory_files.MOST_FILES", 2)
    monkeypatch.setattr(memory_paths, "LISTED", 3)
    for number in range(3):
        api.write(f"d/{number}", "x")
    assert "more than 2 files" in refused(api, "delete", path="/memories/d")
    assert use(api, "view", path="/memories/d").endswith("… and 1 more: look into the folders")


@pytest.mark.parametrize("distilled_id", [UUID(int=1), UUID(int=2**128 - 1)], ids=["lowest id", "highest id"])
def test_what_was_distilled_is_a_file_and_an_edit_of_it_is_curated(distilled_id: UUID, api: Api) -> None:
    assert api.agent
    distilled = MemoryFactory.create(
        id=distilled_id, owner=api.agent, key="port", content="It is 80.", origin="distilled", tags=["net"]
    )
    assert "It is 80." in use(api, "view", path="/memories/port")
    use(api, "str_replace", path="/memories/port", old_str="80", new_str="8080")
    assert "It is 8080." in use(api, "view", path="/memories/port")
    distilled.refresh_from_db()
    assert (distilled.content, distilled.version) == ("It is 80.", 1)
    assert Memory.objects.get(origin="curated").tags == ["net"]
    use(api, "rename", old_path="/memories/port", new_path="/memories/web-port")
    assert [(row.key, row.origin) for row in Memory.objects.kept()] == [("web-port", "curated")]
    use(api, "delete", path="/memories/web-port")
    assert refused(api, "view", path="/memories/web-port")
    assert refused(api, "view", path="/memories/port")


def test_what_agents_do_not_find_is_no_file(api: Api) -> None:
    assert api.agent
    MemoryFactory.create(owner=api.agent, key="d/old", origin="distilled", withdrawn_at=timezone.now())
    MemoryFactory.create(owner=api.agent, key="d/over", expires_at=timezone.now())
    assert "does not exist" in refused(api, "view", path="/memories/d")
    assert "does not exist" in refused(api, "view", path="/memories/d/old")
    assert "does not exist" in refused(api, "delete", path="/memories/d/over")


def test_a_folder_may_be_renamed_to_what_begins_like_it(api: Api) -> None:
    api.write("d/a", "x")
    use(api, "rename", old_path="/memories/d", new_path="/memories/d2")
    assert {row.key for row in Memory.objects.all()} == {"d2/a"}


def test_an_edit_of_what_was_distilled_writes_over_no_file_that_came_meanwhile(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    MemoryFactory.create(owner=api.agent, key="port", content="It is 80.", origin="distilled")
    locked = memory_files._existing

    def slowly(shelf: memory_files.Shelf, path: str) -> Memory:
        found = locked(shelf, path)
        api.write("port", "It is 443.")
        return found

    monkeypatch.setattr(memory_files, "_existing", slowly)
    told = refused(api, "str_replace", path="/memories/port", old_str="80", new_str="8080")
    assert "changed by somebody else" in told


def test_m4_another_agents_files_are_not_there(api: Api, other: Api) -> None:
    api.write("plan", "Canary.")
    commands: dict[str, dict[str, Any]] = {
        "view": {},
        "str_replace": {"old_str": "Canary", "new_str": "x"},
        "insert": {"insert_line": 0, "insert_text": "x"},
        "delete": {},
    }
    for command, given in commands.items():
        assert "does not exist" in refused(other, command, path="/memories/plan", **given)
    assert "Canary" not in use(other, "view", path="/memories")
    use(other, "create", path="/memories/plan", file_text="Mine.")
    assert api.get("/memories/plan").body["content"] == "Canary."


def test_shared_memories_are_files_of_their_own(api: Api, other: Api, whole_space: Api) -> None:
    use(api, "create", "?scope=space", path="/memories/rule", file_text="Be kind.")
    assert "Be kind." in use(other, "view", "?scope=space", path="/memories/rule")
    assert "Be kind." in use(whole_space, "view", path="/memories/rule")
    assert refused(api, "view", path="/memories/rule")
    use(whole_space, "create", "?scope=mine&owner=ada", path="/memories/own", file_text="Hers.")
    assert "Hers." in use(api, "view", path="/memories/own")
    assert whole_space.post("/memory-tool?scope=mine", {"command": "view", "path": "/memories"}).status == 422
    assert api.post("/memory-tool?owner=ada", {"command": "view", "path": "/memories"}).status == 422


@pytest.mark.parametrize(
    "body",
    [
        {}, {"command": "format"}, {"command": "view"}, {"command": "view", "path": 4},
        {"command": "create", "path": "/memories/a"},
        {"command": "view", "path": "/memories", "view_range": [1]}, {"command": "view", "path": "/memories/\0"},
        {"command": "insert", "path": "/memories/a", "insert_line": "1", "insert_text": "x"}, [],
    ],
)  # fmt: skip
def test_what_is_no_command_is_422(api: Api, body: Any) -> None:
    assert api.post("/memory-tool", body).status == 422


@pytest.mark.django_db(transaction=True)
def test_of_edits_at_once_none_is_lost() -> None:
    api = of_agent(AgentFactory.create())
    api.write("k", "start")

    def add(number: int) -> None:
        try:
            use(replace(api, client=Client()), "insert", path="/memories/k", insert_line=0, insert_text=str(number))
        finally:
            connections.close_all()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(add, range(6)))
    memory = Memory.objects.get()
    assert (sorted(memory.content.split("\n")), memory.version) == ([*"012345", "start"], 7)
