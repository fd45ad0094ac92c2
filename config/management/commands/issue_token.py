from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agentmemory.errors import AgentMemoryError
from agentmemory.services import spaces, tokens


class Command(BaseCommand):
    help = "Prints one new token on standard output, alone on the last line. It is never shown again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--space", required=True, metavar="SLUG")
        parser.add_argument("--agent", metavar="HANDLE", help="Without it the token is for the whole space.")
        parser.add_argument("--name", default="", help="What it is for; shown in the admin.")
        parser.add_argument("--create", action="store_true", help="Make the space and the agent where missing.")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if options["create"]:
                space = spaces.ensure(options["space"])
                agent = spaces.ensure_agent(space, options["agent"]) if options["agent"] else None
            else:
                space = spaces.get(options["space"])
                agent = spaces.get_agent(space, options["agent"]) if options["agent"] else None
            issued = tokens.issue(space=space, agent=agent, name=options["name"])
        except AgentMemoryError as error:
            hint = "" if options["create"] else " `--create` makes what is missing."
            raise CommandError(f"{error}{hint}") from error
        self.stdout.write(issued.plain)
