"""`import_transcripts`: session files of other programs become sessions here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentmemory.errors import Invalid, NotFound
from agentmemory.management import import_table
from agentmemory.models import Agent
from agentmemory.services import importing, spaces


class Command(BaseCommand):
    help = (
        "Import session files, or folders of them, as sessions of an agent. Safe to repeat: only what is new is added."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("paths", nargs="+", metavar="PATH", type=Path, help="a session file, or a folder of them")
        parser.add_argument("--space", required=True, metavar="SLUG", help="made where it is missing")
        parser.add_argument("--agent", required=True, metavar="HANDLE", help="made where it is missing")
        parser.add_argument(
            "--format", default=importing.AUTO, choices=importing.formats(), help="default: %(default)s"
        )

    def handle(self, *args: object, **options: Any) -> None:
        agent = self._agent(options["space"], options["agent"])
        reports: list[importing.FileReport] = []
        for path in options["paths"]:
            reports += importing.import_path(agent=agent, path=path, format=options["format"])
        for line in import_table.lines(reports):
            self.stdout.write(line)
        if failed := sum(bool(report.error) for report in reports):
            raise CommandError(f"{failed} could not be imported; the others were.")

    def _agent(self, slug: str, handle: str) -> Agent:
        try:
            return spaces.get_agent(spaces.get(slug), handle)
        except NotFound:
            return self._made(slug, handle)

    def _made(self, slug: str, handle: str) -> Agent:
        try:
            space = spaces.ensure(slug)
            agent = None if space.archived_at else spaces.ensure_agent(space, handle)
        except Invalid as error:
            raise CommandError(f"--{'agent' if error.field == 'handle' else 'space'}: {error}") from error
        if agent is None or agent.archived_at:
            raise CommandError(f"The {'agent' if agent else 'space'} is archived: restore it in the admin first.")
        self.stdout.write(f"Made the agent {handle!r} in the space {slug!r}.")
        return agent
