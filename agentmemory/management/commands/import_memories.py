from __future__ import annotations

import getpass
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agentmemory.authorship import Author
from agentmemory.errors import AgentMemoryError
from agentmemory.services import activity, importing_memories, spaces
from agentmemory.services.importing_memories import Problem, Wanted


class Command(BaseCommand):
    help = "Takes in what `export` wrote. Safe to repeat. What is here and says something else is kept, and told."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE", help="What `export` wrote; - is standard input.")
        parser.add_argument("--space", required=True, metavar="S", help="Made where it is missing.")
        parser.add_argument("--replace", action="store_true", help="Write over what says something else, as a version.")
        parser.add_argument("--secrets", choices=["refuse", "keep"], default="refuse")

    def handle(self, *args: Any, **options: Any) -> None:
        author = Author(kind="operator", name=getpass.getuser())
        try:
            space = spaces.ensure(options["space"])
            if space.archived_at is not None:
                raise CommandError("The space is archived: bring it back in the admin first.")
            wanted = Wanted(
                space=space, author=author, replace=options["replace"], keep_secrets=options["secrets"] == "keep"
            )
            report = self._take_in(wanted, options["file"])
        except AgentMemoryError as error:
            raise CommandError(str(error)) from error
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"The file cannot be read: {error}") from error
        activity.record("import memories", who=str(author), target=space, reason="", space=space, detail=vars(report))
        self.stdout.write(f"{report}.")
        if report.refused:
            raise CommandError(f"{report.refused} could not be taken in; the others were.")

    def _take_in(self, wanted: Wanted, path: Path) -> importing_memories.Report:
        if str(path) == "-":
            return importing_memories.take_in(wanted=wanted, lines=sys.stdin, on_problem=self._tell)
        with path.open(encoding="utf-8") as lines:
            return importing_memories.take_in(wanted=wanted, lines=lines, on_problem=self._tell)

    def _tell(self, problem: Problem) -> None:
        self.stdout.write(f"line {problem.line}: {problem.kind}: {problem.key or 'no key'}: {problem.why}")
