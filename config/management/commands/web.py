from __future__ import annotations

import signal
import socket
from argparse import ArgumentParser
from types import FrameType
from typing import Any

import uvicorn
from django.conf import settings
from django.core.management.base import BaseCommand

from sessions_exec import processes
from sessions_exec.services import waiting

# A waiting call may hold its connection for half a minute; a stop does not wait for it.
GRACE = 5


class _Server(uvicorn.Server):
    """Lets calls that wait for events return when it is told to stop: the thread of each would be waited for."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        waiting.stop()
        super().handle_exit(sig, frame)


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
            "config.asgi:application",
            log_config=None,
            access_log=False,
            server_header=False,
            forwarded_allow_ips=settings.AGENTMEMORY_PROXIES,
            timeout_graceful_shutdown=GRACE,
        )
        _Server(config).run(sockets=[socket.socket(fileno=options["socket"])])
