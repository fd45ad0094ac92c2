from __future__ import annotations

import getpass
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from agentmemory.authorship import Author
from agentmemory.services import stored_secrets


class Command(BaseCommand):
    help = "Replaces secrets in what was stored before: transcripts, memories and their history. Safe to repeat."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="Only say what would be replaced.")

    def handle(self, *args: Any, **options: Any) -> None:
        author = Author(kind="operator", name=getpass.getuser())
        found = stored_secrets.redact(author=author, dry_run=options["dry_run"])
        done = "would be replaced" if options["dry_run"] else "replaced"
        for name, counts in found.items():
            kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))
            self.stdout.write(f"{name}: {kinds} {done}")
        if not found:
            self.stdout.write("No secrets were found.")
