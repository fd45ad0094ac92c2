"""How a command begins: what is asked for is understood before anything is made for it."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, InternalError, OperationalError

from config import embedded, entry

pytestmark = pytest.mark.usefixtures("own_log")

Started = list[Path]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Started:
    """The data folders whose database was started; none of them is."""
    found: Started = []
    settings.AGENTMEMORY_EMBEDDED = True
    monkeypatch.setattr(embedded, "ensure", found.append)
    return found


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["issue_token"], 2),
        (["up", "--port", "eighty"], 2),
        (["up", "--colour"], 2),
        (["up", "-h"], 0),
        (["up", "--help"], 0),
        (["no_such_command"], 1),
    ],
)
def test_what_cannot_be_understood_starts_no_database(
    arguments: list[str], status: int, started: Started, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        entry.command_line(["manage.py", *arguments])
    assert ended.value.code == status
    assert started == []
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    assert "usage:" in said.out if status == 0 else said.err


@pytest.mark.django_db
def test_what_is_understood_has_its_database_first(started: Started, capsys: pytest.CaptureFixture[str]) -> None:
    entry.command_line(["manage.py", "clear_logins", "vic", "--reason", "locked out"])
    assert len(started) == 1
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("command", "its_own"), [("version", True), ("diffsettings", False)])
def test_what_needs_no_key_has_one_of_its_own_and_writes_none(
    command: str, its_own: bool, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SECRET_KEY")
    entry._begin(command, ["manage.py", command])
    assert ("SECRET_KEY" in os.environ) is its_own
    monkeypatch.setenv("SECRET_KEY", "given")
    entry._begin(command, ["manage.py", command])
    assert os.environ["SECRET_KEY"] == "given"
    assert started == []


def test_a_command_line_in_a_test_leaves_the_log_of_all_tests_alone(capsys: pytest.CaptureFixture[str]) -> None:
    before = list(logging.getLogger().handlers)
    with pytest.raises(SystemExit):
        entry.command_line(["manage.py", "up", "--help"])
    assert logging.getLogger().handlers == before


def manage(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command of its own process."""
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "AGENTMEMORY_ENV_FILE": "none", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def nobody_listens() -> int:
    """A port at which nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    return port


@pytest.mark.parametrize("command", [["migrate"], ["clear_logins", "--reason", "r"], ["up", "--port", "0"]])
def test_a_server_that_is_not_there_is_told_of_in_one_line(command: list[str], tmp_path: Path) -> None:
    where = f"127.0.0.1:{nobody_listens()}"
    ended = manage(*command, DATABASE_URL=f"postgres://ada:hunter2@{where}/memory", AGENTMEMORY_DATA_DIR=str(tmp_path))
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith("The database: it does not answer: ")
    assert "refused. Start the server, or correct its host and port in DATABASE_URL. " in line
    assert line.endswith("`python manage.py doctor` looks again.")
    assert where.partition(":")[2] in line
    assert "hunter2" not in ended.stdout + ended.stderr


def test_a_server_that_lets_nobody_in_is_told_of_alike(
    started: Started, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.AGENTMEMORY_EMBEDDED = False
    said = 'connection failed: FATAL:  password authentication failed for user "ada"\nmore of it'
    fail(monkeypatch, OperationalError(said), cause=psycopg.OperationalError(said))
    with pytest.raises(SystemExit, match="does not let this user in: correct user and password") as ended:
        entry.command_line(["manage.py", "version"])
    assert "\n" not in str(ended.value)


@pytest.mark.parametrize(
    ("kind", "cause", "told"),
    [
        (InternalError, psycopg.errors.ReadOnlySqlTransaction, "^The database: cannot write, .*takes reads alone: let"),
        (OperationalError, psycopg.errors.DiskFull, "^The database: cannot write, the disk .* is full: free space"),
        (OperationalError, psycopg.errors.AdminShutdown, "^The database: it does not answer: "),
    ],
)
def test_a_server_that_takes_no_writes_or_goes_down_is_told_of_in_one_line(
    kind: type[DatabaseError], cause: type[psycopg.Error], told: str, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(monkeypatch, kind("cannot execute INSERT"), cause=cause("cannot execute INSERT"))
    with pytest.raises(SystemExit, match=told) as ended:
        entry.command_line(["manage.py", "version"])
    assert "\n" not in str(ended.value)


def test_what_a_server_says_that_was_reached_keeps_its_trace(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(monkeypatch, OperationalError("canceled"), cause=psycopg.errors.LockNotAvailable("canceled"))
    with pytest.raises(OperationalError):
        entry.command_line(["manage.py", "version"])


def fail(monkeypatch: pytest.MonkeyPatch, error: Exception, *, cause: Exception) -> None:
    def execute(arguments: list[str]) -> None:
        raise error from cause

    monkeypatch.setattr("django.core.management.execute_from_command_line", execute)


@pytest.mark.parametrize("option", [["--settings=other"], ["--settings", "other"]])
def test_other_settings_are_refused_with_words(option: list[str], started: Started) -> None:
    with pytest.raises(SystemExit, match="Cannot start: --settings is not taken here"):
        entry.command_line(["manage.py", "migrate", *option])
    assert started == []
