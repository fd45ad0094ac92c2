"""`import_transcripts`: session files of other programs become sessions here."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentmemory.errors import Invalid, NotFound
from agentmemory.management import import_table
from agentmemory.models import Agent
from agentmemory.services import importing, spaces, watching


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
        parser.add_argument(
            "--watch", action="store_true", help="stay, and import what is written there; paths may appear later"
        )

    def handle(self, *args: object, **options: Any) -> None:
        agent = self._agent(options["space"], options["agent"])
        if options["watch"]:
            self._watch(agent, options["paths"], options["format"])
            return
        reports: list[importing.FileReport] = []
        for path in options["paths"]:
            reports += importing.import_path(agent=agent, path=path, format=options["format"])
        for line in import_table.lines(reports):
            self.stdout.write(line)
        if failed := sum(bool(report.error) for report in reports):
            raise CommandError(f"{failed} could not be imported; the others were.")

    def _watch(self, agent: Agent, paths: list[Path], format: str) -> None:  # noqa: A002 - the word of the command
        stop = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        self.stdout.write("Watching. Ctrl-C ends it.")
        still = watching.follow(
            agent=agent,
            paths=[path.absolute() for path in paths],
            format=format,
            stop=stop,
            on_reports=self._tell,
        )
        if not still:
            raise CommandError("The agent was archived: nothing more is imported for it.")

    def _tell(self, reports: Sequence[importing.FileReport]) -> None:
        """Say what is new and what went wrong; of all that is known already nothing."""
        telling = [report for report in reports if report.new or report.error]
        for line in import_table.lines(telling) if telling else ():
            self.stdout.write(line)
        self.stdout.flush()

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
