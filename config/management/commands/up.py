from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from config import running


class Command(BaseCommand):
    help = "Web server and task cluster together. Migrates before it listens. Ctrl-C stops everything it started."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="The address to listen on.")
        parser.add_argument("--port", type=int, default=8000, help="The port to listen on; 0: any that is free.")
        parser.add_argument("--no-worker", action="store_true", help="The web server alone.")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            with running.bind(options["host"], options["port"]) as listening:
                running.migrate(options["verbosity"])
                self.prepare()
                running.serve(listening, worker=not options["no_worker"], ready=self.ready)
        except running.CannotRun as error:
            raise CommandError(str(error)) from error

    def prepare(self) -> None:
        """What has to be there before the server listens."""

    def ready(self, address: str) -> bool:
        """Say that it works."""
        self.say("Address", address)
        return True

    def say(self, name: str, value: str) -> None:
        self.stdout.write(f"{name}: {value}")
        self.stdout.flush()
