"""Real processes on the test's database: a supervised cluster, and what there is to find out about it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlencode

import psutil
from django.db import connection

ROOT = Path(__file__).resolve().parents[2]
T = TypeVar("T")

# Fractions of seconds, so that a test can wait for what a minute is given to in life.
QUICK = {
    "AGENTMEMORY_WATCHDOG": "1.5",
    "AGENTMEMORY_CALL_TIMEOUT": "5",
    "AGENTMEMORY_TASK_TIMEOUT": "30",
    "AGENTMEMORY_WORKERS": "2",
}


def database_url() -> str:
    """The address of the test's own database, for another process."""
    settings = connection.get_connection_params()
    parts = {name: str(settings[name]) for name in ("host", "port") if settings.get(name)}
    account = quote(settings["user"]) + (f":{quote(settings['password'])}" if settings.get("password") else "")
    return f"postgresql://{account}@/{settings['dbname']}?{urlencode(parts)}"


def environment(**values: str) -> dict[str, str]:
    own = {"DJANGO_SETTINGS_MODULE": "tests.settings", "DATABASE_URL": database_url()}
    return {**os.environ, **own, **QUICK, **values}


def start(*command: str, program: Sequence[str] = ("manage.py",), **values: str) -> subprocess.Popen[str]:
    """Start `manage.py COMMAND` in a session of its own; its output is kept in a file that `output` reads."""
    log = open(f"/tmp/am-process-{os.getpid()}-{time.monotonic_ns()}.log", "w+")  # noqa: SIM115
    process = subprocess.Popen(
        [sys.executable, *program, *command],
        cwd=ROOT,
        env=environment(**values),
        stdout=log,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    process.log = log  # type: ignore[attr-defined]
    return process


def output(process: subprocess.Popen[str]) -> str:
    return Path(process.log.name).read_text()  # type: ignore[attr-defined]


@contextmanager
def running(*command: str, program: Sequence[str] = ("manage.py",), **values: str) -> Iterator[subprocess.Popen[str]]:
    """A process for the length of a block; nothing of it is left after."""
    process = start(*command, program=program, **values)
    try:
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[str]) -> None:
    family = tree(process.pid)
    process.kill()
    process.wait()
    for member in family:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(family, timeout=5)
    process.log.close()  # type: ignore[attr-defined]
    Path(process.log.name).unlink(missing_ok=True)  # type: ignore[attr-defined]


def tree(pid: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def living(family: list[psutil.Process]) -> list[psutil.Process]:
    """Those that still run; a process that ended and was not waited for is none."""
    found = []
    for member in family:
        try:
            if member.is_running() and member.status() != psutil.STATUS_ZOMBIE:
                found.append(member)
        except psutil.NoSuchProcess:
            continue
    return found


def postmaster(place: Path) -> int | None:
    """The first process of a database server, as its folder names it; nothing while it names none."""
    try:
        return int((place / "postmaster.pid").read_text().split()[0])
    except (FileNotFoundError, IndexError):
        return None


def until(ask: Callable[[], T | None], *, within: float = 40.0) -> T:
    """What `ask` answers once it answers something, asked again and again; fails after `within` seconds."""
    last = time.monotonic() + within
    while True:
        answer = ask()
        if answer:
            return answer
        assert time.monotonic() < last, f"not within {within:g} s"
        time.sleep(0.05)


def stop(process: subprocess.Popen[str], number: int = signal.SIGTERM, *, within: float = 20.0) -> int:
    """Ask a process to stop, and return its exit status."""
    process.send_signal(number)
    return process.wait(within)
