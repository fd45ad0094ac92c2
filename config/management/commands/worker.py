from __future__ import annotations

import os
import secrets
import signal
import socket
import sys
import threading
from argparse import SUPPRESS, ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from config import environment, regular
from distillation.services import holders
from sessions_exec import processes, supervisor
from sessions_exec import regular as ticker

# When the database hangs in the midst of a stop, the cluster still ends in time.
LONGEST_STOP = 17.0


class Command(BaseCommand):
    help = "The supervised task cluster alone: as many as you like, on as many machines. SIGTERM drains it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--parent", type=int, help=SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        stop = _stopped_by_signals()
        if options["parent"]:
            processes.end_with_parent(options["parent"], signal.SIGTERM)
        name = settings.AGENTMEMORY_WORKER_NAME or new_name()
        ticking = threading.Thread(target=ticker.run, args=[regular.ticks()], kwargs={"stop": stop}, daemon=True)
        ticking.start()
        supervisor.Supervisor(_plan(name), stop=stop).run()
        ticking.join(1.0)


def new_name() -> str:
    """A name that no other worker has, on any machine, now or later."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"[:200]


def _plan(name: str) -> supervisor.Plan:
    return supervisor.Plan(
        worker=name,
        command=[sys.executable, str(settings.BASE_DIR / "manage.py"), "cluster"],
        environment=environment.of_child(AGENTMEMORY_WORKER_NAME=name),
        workers=settings.AGENTMEMORY_WORKERS,
        patience=settings.AGENTMEMORY_WATCHDOG,
        task_timeout=settings.AGENTMEMORY_TASK_TIMEOUT,
        died=holders.died,
    )


def _stopped_by_signals() -> threading.Event:
    stop = threading.Event()

    def ask(number: int, frame: object) -> None:
        if not stop.is_set():
            stop.set()
            last = threading.Timer(LONGEST_STOP, _end_now)
            last.daemon = True
            last.start()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, ask)
    return stop


def _end_now() -> None:
    processes.kill(processes.descendants(os.getpid()))
    os._exit(1)
