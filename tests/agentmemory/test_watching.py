"""Folders that are followed while they are written to."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import watchfiles
from django.db import OperationalError, connections

from agentmemory import speech
from agentmemory.models import Agent, Message, Session
from agentmemory.services import importing, spaces, watching
from tests.agentmemory.test_importing import assistant, user
from tests.factories import AgentFactory
from tests.support import clusters

pytestmark = pytest.mark.django_db(transaction=True)

LONG_AGO = 1_700_000_000


@pytest.fixture
def ada() -> Agent:
    return AgentFactory.create(handle="ada", space__slug="acme")


class Watcher:
    """A watch in a thread of its own, over one path."""

    def __init__(self, agent: Agent, *paths: Path, look_around: float = 60.0) -> None:
        self.stop = threading.Event()
        self.reports: list[importing.FileReport] = []
        self.ended: bool | None = None
        self.thread = threading.Thread(target=self._run, args=(agent, paths, look_around), daemon=True)
        self.thread.start()

    def _run(self, agent: Agent, paths: Sequence[Path], look_around: float) -> None:
        try:
            self.ended = watching.follow(
                agent=agent, paths=paths, stop=self.stop, on_reports=self.reports.extend, look_around=look_around
            )
        finally:
            connections.close_all()

    def end(self) -> None:
        self.stop.set()
        self.thread.join(10)
        assert not self.thread.is_alive()


@pytest.fixture
def watch(ada: Agent) -> Iterator[Callable[..., Watcher]]:
    watchers: list[Watcher] = []

    def start(*paths: Path, **more: Any) -> Watcher:
        watchers.append(Watcher(ada, *paths, **more))
        return watchers[-1]

    yield start
    for watcher in watchers:
        watcher.end()


def add(path: Path, *records: Any, old: bool = True) -> None:
    """Write records to the end of a file. With `old` it has been quiet for long, so that nothing is held back."""
    with path.open("a") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
    if old:
        os.utime(path, (LONG_AGO, LONG_AGO + path.stat().st_size))


def arrived(*uids: str) -> None:
    clusters.until(lambda: set(Message.objects.values_list("uid", flat=True)) == set(uids), within=20)


def test_what_is_there_and_what_is_written_later_is_imported(tmp_path: Path, watch: Callable[..., Watcher]) -> None:
    add(tmp_path / "a.jsonl", user("u1", "one", second=1), assistant("m1", "a", second=2))
    watch(tmp_path)
    arrived("u1", "m1")
    add(tmp_path / "a.jsonl", user("u2", "two", second=3))
    arrived("u1", "m1", "u2")
    deeper = tmp_path / "project"
    deeper.mkdir()
    add(deeper / "b.jsonl", user("v1", "three", second=1, sessionId="s2"))
    arrived("u1", "m1", "u2", "v1")


def test_a_line_that_is_half_written_waits_for_its_other_half(tmp_path: Path, watch: Callable[..., Watcher]) -> None:
    path = tmp_path / "a.jsonl"
    add(path, user("u1", "one", second=1))
    whole = json.dumps(user("u2", "two", second=2)) + "\n"
    with path.open("a") as file:
        file.write(whole[:40])
    watcher = watch(tmp_path)
    arrived("u1")
    with path.open("a") as file:
        file.write(whole[40:])
    arrived("u1", "u2")
    assert [report.error for report in watcher.reports if report.error] == []


def test_a_file_that_is_rotated_loses_nothing_and_repeats_nothing(
    tmp_path: Path, watch: Callable[..., Watcher]
) -> None:
    path = tmp_path / "a.jsonl"
    add(path, user("u1", "one", second=1))
    watcher = watch(path)
    arrived("u1")
    add(path, user("u2", "two", second=2))
    path.rename(tmp_path / "a.jsonl.1")
    add(path, user("u3", "three", second=3))
    # The named file alone is followed: what was renamed within a tick is read by its new name in a folder.
    watch(tmp_path)
    arrived("u1", "u2", "u3")
    assert sum(report.new for report in watcher.reports) <= 3
    assert Message.objects.count() == 3


def test_a_watch_that_is_started_again_adds_what_was_missed(tmp_path: Path, watch: Callable[..., Watcher]) -> None:
    path = tmp_path / "a.jsonl"
    add(path, user("u1", "one", second=1))
    first = watch(tmp_path)
    arrived("u1")
    first.end()
    add(path, user("u2", "two", second=2))
    watcher = watch(tmp_path)
    arrived("u1", "u2")
    clusters.until(lambda: sum(report.new for report in watcher.reports) == 1)


def test_a_folder_may_come_later(tmp_path: Path, watch: Callable[..., Watcher]) -> None:
    folder = tmp_path / "later"
    watch(folder)
    time.sleep(0.5)
    folder.mkdir()
    add(folder / "a.jsonl", user("u1", "one", second=1))
    arrived("u1")


def test_what_nobody_tells_of_is_found_by_looking_around(
    tmp_path: Path, watch: Callable[..., Watcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*paths: Path, stop_event: threading.Event, **_: Any) -> Iterator[set[Any]]:
        while not stop_event.wait(0.1):
            yield set()

    monkeypatch.setattr(watchfiles, "watch", silent)
    watch(tmp_path, look_around=0.5)
    time.sleep(0.3)
    add(tmp_path / "a.jsonl", user("u1", "one", second=1))
    arrived("u1")


def test_r6_the_end_that_was_held_back_is_imported_when_the_session_is_quiet(
    tmp_path: Path, watch: Callable[..., Watcher], settings: Any
) -> None:
    settings.AGENTMEMORY_IDLE_AFTER = 2.0
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    talk = [user("u1", "one", second=1), assistant("m1", "a", second=2)]
    add(tmp_path / "a.jsonl", *({**record, "timestamp": now} for record in talk), old=False)
    watch(tmp_path)
    arrived("u1")
    arrived("u1", "m1")
    clusters.until(lambda: Session.objects.filter(terminal_seq=2).exists(), within=20)


def test_d4_calls_of_this_product_are_never_imported(tmp_path: Path, watch: Callable[..., Watcher]) -> None:
    add(
        tmp_path / "own.jsonl",
        user("x1", f"{speech.EXTRACTION_MARKER} Read.", second=1),
        assistant("y", "{}", second=2),
    )
    add(tmp_path / "z.jsonl", user("u1", "one", second=1, sessionId="s2"))
    watch(tmp_path)
    arrived("u1")


def test_other_files_beside_them_are_no_error(tmp_path: Path, watch: Callable[..., Watcher]) -> None:
    (tmp_path / "notes.txt").write_text("Buy milk.")
    add(tmp_path / "a.jsonl", user("u1", "one", second=1))
    watcher = watch(tmp_path)
    arrived("u1")
    (tmp_path / "more.txt").write_text("And bread.")
    clusters.until(lambda: any(report.file.name == "more.txt" for report in watcher.reports))
    assert [report.error for report in watcher.reports if report.error] == []


def test_a_database_that_is_away_is_waited_for(
    tmp_path: Path, watch: Callable[..., Watcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    add(tmp_path / "a.jsonl", user("u1", "one", second=1))
    real, calls = importing.import_files, []

    def flaky(**given: Any) -> list[importing.FileReport]:
        calls.append(1)
        if len(calls) < 3:
            raise OperationalError("the server closed the connection")
        return real(**given)

    monkeypatch.setattr(importing, "import_files", flaky)
    watch(tmp_path)
    arrived("u1")


def test_t4_it_ends_when_the_agent_is_archived(tmp_path: Path, ada: Agent, watch: Callable[..., Watcher]) -> None:
    watcher = watch(tmp_path)
    spaces.archive_agent(agent_id=ada.pk)
    clusters.until(lambda: watcher.ended is False, within=10)


@pytest.mark.e2e
def test_the_command_follows_a_folder_and_ends_when_it_is_told_to(tmp_path: Path) -> None:
    add(tmp_path / "a.jsonl", user("u1", "one", second=1))
    command = ("import_transcripts", str(tmp_path), "--space", "acme", "--agent", "ada", "--watch")
    with clusters.running(*command) as process:
        arrived("u1")
        add(tmp_path / "a.jsonl", user("u2", "two", second=2))
        arrived("u1", "u2")
        assert clusters.stop(process, signal.SIGTERM) == 0
        said = clusters.output(process)
    assert "a.jsonl" in said
    assert "1 session: 1 messages new" in said
