"""How a command begins: what is asked for is understood before anything is made for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from config import embedded, entry

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
