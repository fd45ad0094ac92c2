"""A database that takes reads alone, as a standby does: every read is answered, and every write says why it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.db import InternalError, OperationalError, connection

from agentmemory import notes
from agentmemory.services import rates
from tests.support import standby
from tests.support.clients import Api, assistant, result, user

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def filled(api: Api) -> Iterator[Api]:
    api.put("/memories/notes/port", {"content": "We listen on port 8080."})
    api.say("s1", user("u1", "Which port?"), assistant("a1", "We listen on port 8080."), result("r1"))
    rates._permits.clear()
    yield api
    rates._permits.clear()


@contextmanager
def reads_alone() -> Iterator[None]:
    with connection.cursor() as cursor:
        # So that its use is due to be noted.
        cursor.execute("UPDATE agentmemory_token SET last_used_at = NULL")
    with standby.reads_alone():
        yield


@pytest.mark.parametrize(
    "path",
    [
        "/memories",
        "/memories/notes/port",
        "/search?q=port",
        "/context?q=port",
        "/transcripts/search?q=port",
        "/sessions",
        "/sessions/s1",
        "/sessions/s1/messages",
        "/sessions/s1/events",
        "/sessions/s1/inputs",
        "/distillation",
    ],
)
def test_every_read_is_answered(filled: Api, path: str) -> None:
    with reads_alone():
        answer = filled.get(path)
    assert answer.status == 200, answer.text


@pytest.mark.parametrize("path", ["/memories", "/memories/notes/port"])
def test_files_of_the_memory_tool_are_shown(filled: Api, path: str) -> None:
    with reads_alone():
        answer = filled.post("/memory-tool", {"command": "view", "path": path})
    assert answer.status == 200, answer.text
    assert "port" in answer.body["content"]


def test_a_write_says_why_it_is_refused(filled: Api) -> None:
    with reads_alone():
        answer = filled.put("/memories/other", {"content": "c"})
    assert (answer.status, answer.body["detail"]) == (503, "The database takes no writes now.")
    assert filled.get("/memories/other").status == 404


def test_calls_are_counted_again_once_they_can_be(filled: Api, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.AGENTMEMORY_RATE_LIMIT = 2
    monkeypatch.setattr("agentmemory.services.rates.time.time", lambda: 6_000_000.0 * rates.MINUTE + 15)
    rates._permits.clear()
    with reads_alone():
        assert [filled.get("/memories").status for _ in range(5)] == [200] * 5
    assert [filled.get("/memories").status for _ in range(3)] == [200, 200, 429]


@pytest.mark.parametrize(
    ("kind", "cause", "kept"),
    [
        (InternalError, psycopg.errors.ReadOnlySqlTransaction, True),
        (OperationalError, psycopg.errors.DiskFull, True),
        (OperationalError, psycopg.errors.AdminShutdown, False),
        (InternalError, psycopg.errors.InFailedSqlTransaction, False),
    ],
)
def test_of_a_notes_errors_only_that_nothing_is_written_is_passed_over(
    kind: type[Exception], cause: Callable[[], Exception], kept: bool
) -> None:
    def note() -> None:
        with notes.beside_a_read():
            raise kind("refused") from cause()

    if kept:
        note()
    else:
        with pytest.raises(kind):
            note()
