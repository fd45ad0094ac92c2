from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agentmemory.callers import Caller
from agentmemory.errors import AgentMemoryError
from agentmemory.services import removals, sessions, spaces
from distillation.services import reconciliation


class Command(BaseCommand):
    help = "Takes messages back, and settles the memories that rest on them. --dry-run only says what would happen."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("uids", nargs="+", metavar="UID", help="Messages, by their uid.")
        parser.add_argument("--space", required=True)
        parser.add_argument("--agent", required=True)
        parser.add_argument("--session", required=True)
        parser.add_argument("--reason", required=True)
        parser.add_argument("--delete", action="store_true", help="Delete them for good instead of retracting them.")
        parser.add_argument("--dry-run", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            space = spaces.get(options["space"])
            agent = spaces.get_agent(space, options["agent"])
            session = sessions.find(caller=Caller(space=space), name=options["session"], agent=agent)
        except AgentMemoryError as error:
            raise CommandError(str(error)) from error
        plan = reconciliation.plan(session=session, uids=options["uids"])
        for change in plan:
            version = f" to version {change.version}" if change.version else ""
            self.stdout.write(f"{change.memory.key}: {change.action}{version}")
        if options["dry_run"]:
            self.stdout.write(f"{len(plan)} memories rest on these messages. Nothing was changed.")
            return
        act = removals.remove if options["delete"] else removals.retract
        count = act(session=session, uids=options["uids"], reason=options["reason"])
        self.stdout.write(f"{count} messages {'deleted' if options['delete'] else 'retracted'}.")
