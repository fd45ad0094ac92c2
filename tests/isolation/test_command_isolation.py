"""T2: a command that names a space works on that space, also where another one has an agent of the same name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from agentmemory.models import Memory
from tests.factories import AgentFactory
from tests.isolation.strangers import CANARY, SESSION, UID, state
from tests.support.clients import Api

Line = Callable[[Path], list[str]]

LINES: dict[str, Line] = {
    "consolidate": lambda file: [],
    "distill": lambda file: ["--session", SESSION],
    "distill --dry-run": lambda file: ["--session", SESSION, "--dry-run"],
    "export": lambda file: [str(file)],
    "purge --session": lambda file: ["--session", SESSION, "--reason", "asked for"],
    "purge --message": lambda file: ["--session", SESSION, "--message", UID, "--reason", "asked for"],
    "purge --everything": lambda file: ["--everything", "--reason", "asked for"],
    "run_agent": lambda file: ["--once"],
    "take_back": lambda file: ["--session", SESSION, "--reason", "wrong", UID],
    "take_back --delete": lambda file: ["--session", SESSION, "--reason", "wrong", "--delete", UID],
}


def said(line: str, space: str, file: Path, capsys: pytest.CaptureFixture[str]) -> str:
    try:
        call_command(line.split()[0], "--space", space, "--agent", "ada", *LINES[line](file))
    except CommandError as error:
        return str(error)
    printed = capsys.readouterr()
    return printed.out + printed.err + (file.read_text() if file.exists() else "")


@pytest.mark.parametrize("line", LINES)
def test_t2_a_command_for_a_namesake_touches_and_tells_nothing(
    victim: Api, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    namesake = AgentFactory.create(handle="ada", space__slug="elsewhere")
    before = state(victim)
    told = said(line, namesake.space.slug, tmp_path / "file", capsys)
    assert CANARY not in told.replace(SESSION, "").replace(UID, "")
    assert "fox" not in told
    assert state(victim) == before


def test_t2_a_memory_of_another_space_is_not_purged_by_its_id(victim: Api) -> None:
    namesake = AgentFactory.create(handle="ada", space__slug="elsewhere")
    before = state(victim)
    one = str(Memory.objects.get().pk)
    with pytest.raises(CommandError):
        call_command("purge", "--space", namesake.space.slug, "--memory", one, "--reason", "asked for")
    assert state(victim) == before
