from __future__ import annotations

import getpass
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agentmemory.authorship import Author
from agentmemory.errors import AgentMemoryError
from agentmemory.services import consolidation, consolidation_plans, spaces


class Command(BaseCommand):
    help = "Merges distilled memories that say the same, links those that repeat curated ones. All of it can be undone."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--space", metavar="S", help="Only this space.")
        parser.add_argument("--agent", metavar="H", help="Only what this agent owns; needs --space.")
        parser.add_argument("--afresh", action="store_true", help="Look again at what has not changed since.")
        parser.add_argument("--dry-run", action="store_true", help="Say what would be done and why, and do nothing.")
        parser.add_argument("--reason", default="by command", help="Kept with what is done.")

    def handle(self, *args: Any, **options: Any) -> None:
        scope: dict[str, Any] = {"afresh": options["afresh"], **_within(options["space"], options["agent"])}
        if options["dry_run"]:
            return self._tell(scope)
        author = Author(kind="operator", name=getpass.getuser())
        report = consolidation.run_all(**scope, author=author, reason=options["reason"], on_plan=self._show)
        self.stdout.write(f"{report}.")
        return None

    def _tell(self, scope: dict[str, Any]) -> None:
        count, after, ended = 0, None, False
        while not ended:
            plan = consolidation_plans.plan(**scope, after=after)
            self._show(plan)
            count, after = count + len(plan.items), plan.next
            ended = after is None
        self.stdout.write(f"{count} would be done. Nothing was changed.")

    def _show(self, plan: consolidation_plans.Plan) -> None:
        for item in plan.items:
            to = f" -> {item.other_key}" if item.other_id else ""
            self.stdout.write(f"{item.kind:7} {item.owner or 'shared'}: {item.key}{to} ({item.why})")


def _within(slug: str | None, handle: str | None) -> dict[str, Any]:
    if slug is None:
        if handle:
            raise CommandError("--agent needs --space: handles are unique within a space alone.")
        return {}
    try:
        space = spaces.get(slug)
        return {"space": space, "agent": spaces.get_agent(space, handle) if handle else None}
    except AgentMemoryError as error:
        raise CommandError(str(error)) from error
