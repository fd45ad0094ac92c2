from __future__ import annotations

import os
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from sessions_exec import processes, queue


class Command(BaseCommand):
    help = "The task cluster itself. Started by `worker`, which watches it; not meant to be run by hand."
    # The one that starts it has made them.
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--parent", type=int, required=True, help="The process with which it ends.")
        parser.add_argument(
            "--ready", type=int, required=True, help="The descriptor that is told of its processes when it works."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        def ready() -> None:
            family = processes.descendants(os.getpid())
            os.write(options["ready"], " ".join(str(member.pid) for member in family).encode())
            os.close(options["ready"])

        queue.run_cluster(parent=options["parent"], ready=ready)
