"""Real processes that are killed, stopped or asked to end at a named point of their work.

Orders lie in a folder, one a file; the process that comes to the point first takes the order and carries it out, once.

- `python -m tests.support.faulty_worker COMMAND` is `manage.py COMMAND` under the orders of the folder that
  `FAULT_ORDERS` names; of `worker` every process is, those of the cluster and those that it forks too.
- `start(...)` runs one command in a process that a prepared server forks, in a fraction of a second.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import django
from django.apps import apps

if not apps.ready:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()

import anthropic  # noqa: F401  # seconds that the forked processes need not spend

from sessions_exec import faults

POINTS = (
    "lease.before",
    "lease.after",
    "window.before",
    "window.after",
    "call.before",
    "call.after",
    "answer.before",
    "answer.after",
    "write.before",
    "write.after",
    "commit.before",
    "commit.after",
)
ANYWHERE = "anywhere"
# How likely an order for anywhere is carried out at a point.
CHANCE = 0.12
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.support.faulty_worker"])


class Orders:
    """What is to happen where. `done` are the orders that were carried out: (point, action, process)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def new(cls) -> Orders:
        return cls(Path(tempfile.mkdtemp(prefix="am-orders-", dir="/tmp")))

    def give(self, point: str, action: str = "kill", *, times: int = 1) -> None:
        for number in range(times):
            (self.folder / f"{point}~{action}~{number}").touch()

    @property
    def left(self) -> list[str]:
        return sorted(path.name.partition("~")[0] for path in self.folder.glob("*~*") if "=" not in path.name)

    @property
    def done(self) -> list[tuple[str, str, int]]:
        found = []
        for path in sorted(self.folder.glob("done=*")):
            point, action, process = path.name.removeprefix("done=").split("~")[:3]
            found.append((point, action, int(process)))
        return found

    def cancel(self) -> None:
        for path in self.folder.glob("*~*"):
            if "=" not in path.name:
                path.unlink(missing_ok=True)

    def reach(self, point: str) -> None:
        """The hook: carry out one order for this point, if there is one."""
        chosen = sorted(self.folder.glob(f"{point}~*"))
        if random.random() < CHANCE:
            chosen += sorted(self.folder.glob(f"{ANYWHERE}~*"))
        for path in chosen:
            action = path.name.split("~")[1]
            try:
                # Whoever renames it has it.
                path.rename(self.folder / f"done={point}~{action}~{os.getpid()}~{time.monotonic_ns()}")
            except FileNotFoundError:
                continue
            return _carry_out(action)
        return None


def _carry_out(action: str) -> None:
    if action.startswith("restart+"):
        _restart_database(float(action.removeprefix("restart+")))
        return
    number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "terminate": signal.SIGTERM}[action]
    os.kill(os.getpid(), number)
    if action == "terminate":
        # The signal is the main thread's to see.
        time.sleep(2)


def _restart_database(seconds: float) -> None:
    """Crash the server of `FAULT_CLUSTER` and start it again, beginning `seconds` ago or from now on."""
    program = [sys.executable, "-m", "tests.support.faulty_worker", "--restart", os.environ["FAULT_CLUSTER"]]
    crash = subprocess.Popen(program, cwd=Path(__file__).resolve().parents[2])
    if seconds < 0:
        crash.wait(60)
    else:
        # The program takes its time to begin: this lets the crash fall into what follows.
        time.sleep(seconds)


def start(
    command: Sequence[str],
    *,
    orders: Orders,
    settings: Mapping[str, Any],
    database: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
) -> BaseProcess:
    """Run one command in a forked process, under orders."""
    process = FORKS.Process(
        target=_run, args=(list(command), str(orders.folder), dict(settings), dict(database), dict(environment or {}))
    )
    process.start()
    return process


def _run(
    command: list[str],
    folder: str,
    values: dict[str, Any],
    database: dict[str, Any],
    environment: dict[str, str],
) -> None:
    from django.conf import settings
    from django.core.management import call_command
    from django.db import connection

    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(environment)
    connection.settings_dict.update(database)
    for name, value in values.items():
        setattr(settings, name, value)
    random.seed()
    faults.install(Orders(Path(folder)).reach)
    call_command(*command)


def _of_the_cluster() -> None:
    """Let the supervisor start this program for its cluster, too."""
    from config.management.commands import worker

    plan = worker._plan
    program = [sys.executable, "-m", "tests.support.faulty_worker", "cluster"]
    worker._plan = lambda name: dataclasses.replace(plan(name), command=program)


def main() -> None:
    if sys.argv[1:2] == ["--restart"]:
        from config import programs

        programs.run(
            "pg_ctl", "-D", ".", "-m", "immediate", "-w", "-t", 60, "-l", "server.log", "restart",
            within=Path(sys.argv[2]),
        )  # fmt: skip
        return
    from config import entry

    faults.install(Orders(Path(os.environ["FAULT_ORDERS"])).reach)
    _of_the_cluster()
    entry.command_line(["manage.py", *sys.argv[1:]])


if __name__ == "__main__":
    main()
