"""The probes: up, ready, working."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, OperationalError, connection, transaction
from django.test import Client

from config import doctor_database, health, writing
from sessions_exec.services import heartbeats


@pytest.fixture(autouse=True)
def nothing_asked_yet() -> Iterator[None]:
    writing.forget()
    yield
    writing.forget()


def test_health_asks_nothing_of_anything_else(client: Client, db: None) -> None:
    with connection.execute_wrapper(_refuse):
        answer = client.get("/healthz")
    assert (answer.status_code, answer.content) == (200, b"ok\n")


def _refuse(*_: object) -> None:
    raise AssertionError("a query")


def test_ready_when_the_database_answers_and_is_migrated(
    client: Client, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.get("/readyz").status_code == 200
    monkeypatch.setattr(health, "unapplied", lambda: ["agentmemory.0099_later"])
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert b"migrate" in answer.content


def test_not_ready_without_a_database(client: Client, db: None) -> None:
    with connection.execute_wrapper(_fail):
        assert client.get("/readyz").status_code == 503
        assert client.get("/progressz").status_code == 503


def test_a_probe_that_says_no_is_no_error_in_the_log(
    client: Client, db: None, caplog: pytest.LogCaptureFixture
) -> None:
    with connection.execute_wrapper(_fail):
        assert client.get("/readyz").status_code == 503
        assert client.get("/progressz").status_code == 503
        assert client.get("/metrics").status_code == 404
    assert not caplog.records


def test_another_page_that_fails_is_an_error_in_the_log(
    client: Client, db: None, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.AGENTMEMORY_METRICS_TOKEN = "m"
    with connection.execute_wrapper(_fail):
        assert client.get("/metrics", headers={"Authorization": "Bearer m"}).status_code == 503
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def _fail(*_: object) -> None:
    raise DatabaseError("gone")


def test_d26_progress_fails_with_one_line_without_a_heartbeat(client: Client, db: None) -> None:
    answer = client.get("/progressz")
    assert answer.status_code == 503
    assert answer.content.count(b"\n") == 1
    heartbeats.beat(worker="w", host="h", pid=1, processes=2)
    assert client.get("/progressz").status_code == 200


# --- a database that takes no writes ---


def of_no_use(client: Client, words: str) -> None:
    """Both probes and `doctor` say it, though every read is answered."""
    ready, progress = client.get("/readyz"), client.get("/progressz")
    assert (ready.status_code, progress.status_code) == (503, 503)
    assert ready.content.decode().startswith(f"not ready: cannot write, {words}")
    assert progress.content.decode().startswith(f"cannot write, {words}")
    assert progress.content.count(b"\n") == 1
    told = [finding for finding in doctor_database.reached() if finding.level == "wrong"]
    assert [finding.about for finding in told] == ["database"]
    assert told[0].line.startswith(f"cannot write, {words}")
    assert told[0].advice


def test_d26_a_database_that_takes_reads_alone_is_not_ready(client: Client, db: None) -> None:
    heartbeats.beat(worker="w", host="h", pid=1, processes=2)
    assert client.get("/progressz").status_code == 200
    writing.forget()
    with connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION READ ONLY")
    of_no_use(client, "the database takes reads alone")


def on_a_full_disk(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
    """As PostgreSQL answers there: what needs no room is done, updates within a page too."""
    if sql == writing._SPILL:
        raise OperationalError("could not write") from psycopg.errors.DiskFull("could not write")
    return execute(sql, *rest)


def test_d26_a_full_disk_is_not_ready_even_while_heartbeats_still_fit_into_their_page(client: Client, db: None) -> None:
    with connection.execute_wrapper(on_a_full_disk):
        heartbeats.beat(worker="w", host="h", pid=1, processes=2)
        of_no_use(client, "the disk of the database is full")


def test_whether_there_is_room_is_asked_of_the_disk_and_a_bound_is_no_obstacle(db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL temp_file_limit = 0")
        cursor.execute(writing._FRUGAL)
        with pytest.raises(OperationalError, match="temp_file_limit"), transaction.atomic():
            cursor.execute(writing._SPILL)
    assert writing.obstacle() is None


def test_probes_ask_the_disk_once_in_a_while_and_a_database_that_is_gone_is_asked_again(
    client: Client, db: None
) -> None:
    asked: list[str] = []

    def note(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        asked.append(sql)
        return execute(sql, *rest)

    with connection.execute_wrapper(_fail):
        assert client.get("/readyz").status_code == 503
    with connection.execute_wrapper(note):
        for _ in range(5):
            assert client.get("/readyz").status_code == 200
    assert asked.count(writing._SPILL) == 1
