from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agentmemory.errors import AgentMemoryError
from agentmemory.services import exporting, spaces


class Command(BaseCommand):
    help = "Writes the memories of a space or an agent to standard output, with sources and history, as JSON Lines."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--space", required=True, metavar="S")
        parser.add_argument("--agent", metavar="H", help="Only what this agent owns.")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            space = spaces.get(options["space"])
            agent = spaces.get_agent(space, options["agent"]) if options["agent"] else None
        except AgentMemoryError as error:
            raise CommandError(str(error)) from error
        for line in exporting.lines(space=space, agent=agent):
            self.stdout.write(json.dumps(line, ensure_ascii=False))
