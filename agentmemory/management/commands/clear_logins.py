from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from agentmemory.services import logins


class Command(BaseCommand):
    help = "Forgets tries to sign in, for one who is held back and has nobody to ask: of an account, or all of them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("account", nargs="?", default="", help="Empty: all of them.")
        parser.add_argument("--reason", required=True, help="Why, for the record.")

    def handle(self, *args: Any, **options: Any) -> None:
        rows = list(logins.of(options["account"]) if options["account"] else logins.counting())
        for row in rows:
            logins.clear(row, who="system:command", reason=options["reason"])
        self.stdout.write(f"{len(rows)} forgotten.")
