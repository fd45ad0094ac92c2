from __future__ import annotations

import signal
import socket
from argparse import ArgumentParser
from typing import Any

import uvicorn
from django.core.management.base import BaseCommand

from sessions_exec import processes

# A waiting call may hold its connection for half a minute; a stop does not wait for it.
GRACE = 5


class Command(BaseCommand):
    help = "The web server on a socket that is bound already. Started by `up`; not meant to be run by hand."
    # The one that starts it has made them.
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--socket", type=int, required=True, help="The descriptor of the bound socket.")
        parser.add_argument("--parent", type=int, required=True, help="The process with which it ends.")

    def handle(self, *args: Any, **options: Any) -> None:
        processes.end_with_parent(options["parent"], signal.SIGTERM)
        # The application sets its own logging up; an access log would tell keys and search words.
        config = uvicorn.Config(
            "config.asgi:application", log_config=None, access_log=False, timeout_graceful_shutdown=GRACE
        )
        uvicorn.Server(config).run(sockets=[socket.socket(fileno=options["socket"])])
