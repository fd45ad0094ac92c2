"""The whole service in the foreground: a web server and a supervised task cluster, as children of one process.

Each child is a process group of its own, so that the terminal's Ctrl-C reaches this process alone, and ends with it,
however it ends. One that dies is started again; one that cannot even start ends the whole.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

import psutil
from django.conf import settings
from django.core.management import call_command
from django.db import DatabaseError, connection
from django.db.backends.utils import CursorWrapper

from config import embedded, environment, programs
from config.management.commands.worker import new_name
from sessions_exec import processes
from sessions_exec.services import heartbeats

# The embedded database is stopped after it; together within 20 seconds.
STOP_SECONDS = 16.0
LOOK = 0.25
# A child that dies so soon, so often in a row, will not come up at all.
QUICK_DEATH = 10.0
QUICK_DEATHS = 3
MIGRATING = 0x616D6967


class CannotRun(RuntimeError):
    """The service cannot go on; the text says why and what to do."""


@dataclass(kw_only=True)
class Child:
    """One of the processes that are kept alive."""

    name: str
    command: list[str]
    environment: dict[str, str]
    descriptors: list[int] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    quick_deaths: int = 0

    def start(self) -> None:
        command = [sys.executable, str(settings.BASE_DIR / "manage.py"), *self.command, "--parent", str(os.getpid())]
        self.process = subprocess.Popen(
            command, env=self.environment, pass_fds=self.descriptors, start_new_session=True, cwd=settings.BASE_DIR
        )
        self.started = time.monotonic()

    def look(self) -> None:
        """Start it again if it has died. Raises `CannotRun` when that is of no use."""
        if self.process is None or self.process.poll() is None:
            return
        processes.signal_group(self.process.pid, signal.SIGKILL)
        self.quick_deaths = self.quick_deaths + 1 if time.monotonic() - self.started < QUICK_DEATH else 0
        if self.quick_deaths >= QUICK_DEATHS:
            raise CannotRun(f"The {self.name} ended {QUICK_DEATHS} times in a row; what it said stands above.")
        self.start()


def bind(host: str, port: int) -> socket.socket:
    """The socket that the web server will listen on. Raises `CannotRun` where the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        found.close()
        raise CannotRun(
            f"Cannot listen on {host}, port {port}: {error.strerror}. Take another one with --port."
        ) from error
    return found


def address(listening: socket.socket) -> str:
    """Where a browser on this machine reaches the server."""
    host, port = listening.getsockname()[:2]
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{name}:{port}"


def migrate(verbosity: int = 1) -> None:
    """Bring the database up to date; of several that come at once one does it and the others wait."""
    with connection.cursor() as cursor:
        # Asked again and again: a statement that waits for the lock would itself be waited for by an index that is
        # built concurrently, and neither would come to an end.
        while not _taken(cursor):
            time.sleep(LOOK)
        try:
            call_command("migrate", interactive=False, verbosity=verbosity)
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [MIGRATING])


def _taken(cursor: CursorWrapper) -> bool:
    cursor.execute("SELECT pg_try_advisory_lock(%s)", [MIGRATING])
    return bool(cursor.fetchone()[0])


def serve(listening: socket.socket, *, worker: bool, ready: Callable[[str], bool]) -> None:
    """Run until SIGTERM, SIGINT or SIGHUP; stop everything then. Raises `CannotRun`.

    `ready` is called with the address again and again from when all works until it returns true.
    """
    stop = _stopped_by_signals()
    name = new_name() if worker else ""
    children = _children(listening, name)
    told = False
    try:
        for child in children:
            child.start()
        while not stop.wait(LOOK):
            for child in children:
                child.look()
            if _database_answers() and not told and _works(address(listening), name):
                told = ready(address(listening))
    finally:
        _stop(children)


def _children(listening: socket.socket, worker: str) -> list[Child]:
    web = Child(
        name="web server",
        command=["web", "--socket", str(listening.fileno())],
        environment=environment.of_child(AGENTMEMORY_PROCESS="web", AGENTMEMORY_WORKER_NAME=worker),
        descriptors=[listening.fileno()],
    )
    cluster = Child(
        name="task cluster",
        command=["worker"],
        environment=environment.of_child(AGENTMEMORY_PROCESS="command", AGENTMEMORY_WORKER_NAME=worker),
    )
    return [web, cluster] if worker else [web]


def _database_answers() -> bool:
    """Whether it does; the embedded one is started again if it has died. The children wait for it meanwhile."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        return True
    except DatabaseError:
        connection.close()
    if settings.AGENTMEMORY_EMBEDDED:
        try:
            embedded.ensure(settings.AGENTMEMORY_DATA_DIR)
        except programs.CannotStart as error:
            raise CannotRun(f"The embedded database cannot be started again: {error}") from error
    return False


def _works(where: str, worker: str) -> bool:
    return _answers(where) and (not worker or heartbeats.working(worker))


def _answers(where: str) -> bool:
    """Whether the web server gives an answer, of whatever kind."""
    parts = urlsplit(where)
    asking = HTTPConnection(parts.hostname or "", parts.port, timeout=2)
    try:
        asking.request("GET", "/healthz")
        asking.getresponse()
    except (OSError, HTTPException):
        return False
    finally:
        asking.close()
    return True


def _stop(children: list[Child]) -> None:
    running = [child.process for child in children if child.process is not None]
    family = [member for process in running for member in processes.descendants(process.pid)]
    for process in running:
        process.terminate()
    last = time.monotonic() + STOP_SECONDS
    while time.monotonic() < last and any(process.poll() is None for process in running):
        time.sleep(0.05)
    for process in running:
        processes.signal_group(process.pid, signal.SIGKILL)
        process.wait()
    processes.kill(family)
    psutil.wait_procs(family, timeout=1)


def _stopped_by_signals() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: stop.set())
    return stop
