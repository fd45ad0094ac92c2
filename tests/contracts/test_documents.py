"""What the documents say is so: every setting is explained, every command and page that they name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.core.management import get_commands

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
READ = re.compile(r'environment\.\w+\(\s*"([A-Z_]+)"')
# Set by one process for another, never by a person.
INTERNAL = {
    "AGENTMEMORY_PROCESS",
    "AGENTMEMORY_WORKER_NAME",
    "AGENTMEMORY_KEY_",
    "ANTHROPIC_CUSTOM_HEADERS",
    "ORT_DISABLE_TELEMETRY",
    "Q_CLUSTER_NAME",
}


def settings_read() -> set[str]:
    return set(READ.findall((ROOT / "config" / "settings.py").read_text())) - INTERNAL


@pytest.mark.parametrize("document", ["docs/settings.md", ".env.example"])
def test_every_setting_is_explained(document: str) -> None:
    text = (ROOT / document).read_text()
    assert {name for name in settings_read() if name not in text} == set()


@pytest.mark.parametrize("document", ["docs/settings.md", ".env.example"])
def test_no_setting_is_explained_that_is_not_read(document: str) -> None:
    named = set(re.findall(r"\b(?:AGENTMEMORY|ANTHROPIC)_[A-Z_]+\b", (ROOT / document).read_text()))
    known = settings_read() | {"AGENTMEMORY_KEY_", "AGENTMEMORY_KEY_NAME"}
    assert named - known == set()


def test_the_defaults_of_env_example_are_those_of_the_settings() -> None:
    source = (ROOT / "config" / "settings.py").read_text()
    numbers = dict(re.findall(r'environment\.(?:seconds|integer)\("([A-Z_]+)", ([\d.]+)', source))
    stated = dict(re.findall(r"^# (AGENTMEMORY_[A-Z_]+)=([\d.]+)$", (ROOT / ".env.example").read_text(), re.MULTILINE))
    assert {name: float(value) for name, value in numbers.items() if name in stated} == {
        name: float(stated[name]) for name in numbers if name in stated
    }
    assert len(stated) > 15


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_within_the_documents_leads_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text())
    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_that_the_documents_name_exists(document: Path) -> None:
    named = set(re.findall(r"manage\.py (\w+)", document.read_text()))
    assert named - set(get_commands()) == set()
