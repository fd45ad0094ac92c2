"""`mcp_stdio`: the memory tools of a running server, for a client that starts its servers as programs."""

from __future__ import annotations

import signal
from typing import Any

import anyio
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentmemory import bridge

PATH = "/mcp"


class Command(BaseCommand):
    help = (
        "Offer the memory tools of a running server over standard input and output, for clients that speak nothing "
        "else. Needs no database."
    )
    # They would look at the database, and what they find belongs to the server.
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--url", default=settings.AGENTMEMORY_URL, help="the server; default: AGENTMEMORY_URL")
        parser.add_argument(
            "--token",
            default=settings.AGENTMEMORY_TOKEN,
            help="default: AGENTMEMORY_TOKEN, which other users of the machine cannot see",
        )

    def handle(self, *args: object, **options: Any) -> None:
        if not options["token"]:
            raise CommandError("There is no token: set AGENTMEMORY_TOKEN, or give --token.")
        # The thread that reads would keep Ctrl-C waiting for one line more.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        anyio.run(lambda: bridge.run(address=_tools(options["url"]), token=options["token"]))


def _tools(url: str) -> str:
    """Where the tools of a server are: it may be named with or without their path."""
    return url.rstrip("/").removesuffix(PATH) + PATH
