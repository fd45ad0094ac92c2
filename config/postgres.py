"""One PostgreSQL cluster in a folder: create it, start it, stop it, ask whether it answers.

Callers make sure that only one of them is at work here at a time (`config.embedded` does).
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from pathlib import Path

import psycopg
from psycopg import sql

from config import programs

START_SECONDS = 60
STOP_SECONDS = 20
# How long the remains of a killed server may take to go away.
PATIENCE_SECONDS = 10
SETTINGS_FILE = "agentmemory.conf"
LOG_FILE = "server.log"
PORT = 5432
FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
REJECTS = 1
# Above every system's largest process id: nobody has it.
NO_PROCESS = 2**31 - 1


def create(cluster: Path, *, user: str, durable: bool) -> None:
    """Create an empty cluster whose owner is `user`. An attempt that was cut short is begun again."""
    unfinished = cluster.with_name(cluster.name + ".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    programs.private_folder(unfinished)
    locale = "C.UTF-8" if sys.platform == "linux" else "en_US.UTF-8"
    options = ["-U", user, "-A", "trust", "-E", "UTF8", f"--locale={locale}"]
    # Named from within: programs hand paths to a shell, and folders may have any name.
    programs.run("initdb", "-D", ".", *options, *([] if durable else ["--no-sync"]), within=unfinished)
    with open(unfinished / "postgresql.conf", "a", encoding="utf-8") as file:
        file.write(f"\ninclude_if_exists = '{SETTINGS_FILE}'\n")
    unfinished.rename(cluster)


def start(cluster: Path, *, socket_folder: Path, durable: bool) -> None:
    """Start the server and wait until it answers. Raises `programs.CannotStart` with the end of its log."""
    if socket_folder != cluster:
        programs.private_folder(socket_folder)
    _write_settings(cluster, socket_folder, durable=durable)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        for lock in (cluster / "postmaster.pid", socket_folder / f".s.PGSQL.{PORT}.lock"):
            _disown(lock)
        try:
            programs.run("pg_ctl", "-D", ".", "-w", "-t", START_SECONDS, "-l", LOG_FILE, "start", within=cluster)
        except programs.ProgramFailed as error:
            log = _tail(cluster / LOG_FILE)
            if ("lock file" not in log and "shared memory" not in log) or time.monotonic() > deadline:
                raise programs.CannotStart(f"{error}\n{log}") from None
            time.sleep(0.3)
        else:
            return


def stop(cluster: Path) -> None:
    """Stop the server, at once if it does not come to an end by itself; one that does not run is no error."""
    for mode in ("fast", "immediate"):
        if not (cluster / "postmaster.pid").exists():
            return
        with contextlib.suppress(programs.ProgramFailed):
            programs.run("pg_ctl", "-D", ".", "-m", mode, "-w", "-t", STOP_SECONDS, "stop", within=cluster)


def answers(socket_folder: Path, *, user: str) -> bool:
    """Whether a server takes connections there; one that is just starting or stopping is waited for.

    Asked with a connection: `pg_ctl status` is content with a process id, which a zombie may have.
    """
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            programs.run("pg_isready", "-q", "-t", 3, "-h", socket_folder, "-p", PORT, "-U", user)
        except programs.ProgramFailed as error:
            if error.status != REJECTS or time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        else:
            return True


def create_database(socket_folder: Path, *, user: str, name: str) -> None:
    """Create the database `name` if it is missing."""
    with psycopg.connect(
        host=str(socket_folder), port=PORT, user=user, dbname="postgres", autocommit=True
    ) as connection:
        found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone()
        if found is None:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))


def _write_settings(cluster: Path, socket_folder: Path, *, durable: bool) -> None:
    """What the server reads at its start: a socket and no port, so that only this user reaches it.

    Its log holds no content: neither the statement that failed nor the row that it quotes.
    """
    listed = '"' + str(socket_folder).replace('"', '""') + '"'
    settings = {
        "cluster_name": "agentmemory",
        "listen_addresses": "",
        "port": str(PORT),
        "unix_socket_directories": listed,
        "log_min_error_statement": "panic",
        "log_error_verbosity": "terse",
    }
    lines = []
    for name, value in {**settings, **({} if durable else FAST)}.items():
        # Backslashes too are read within the quotes of this file.
        quoted = value.replace("\\", "\\\\").replace("'", "''")
        lines.append(f"{name} = '{quoted}'\n")
    (cluster / SETTINGS_FILE).write_text("".join(lines), encoding="utf-8")


def _disown(lock: Path) -> None:
    """Let a lock file name no process, where the one it names is no live server.

    A killed server stays a zombie where nobody reaps it, and after a restart of a container its number belongs
    to something else: PostgreSQL takes both for a live server. The file itself stays, because PostgreSQL finds
    in it whether processes of the dead server still use its memory.
    """
    with contextlib.suppress(OSError, IndexError, ValueError):
        process, _, rest = lock.read_text().partition("\n")
        # A stand-alone server of PostgreSQL writes its number with a minus.
        facts = Path("/proc", str(abs(int(process))), "stat").read_text()
        name, state = facts.partition("(")[2].rpartition(")")[0], facts.rpartition(")")[2].split()[0]
        if state == "Z" or name != "postgres":
            lock.write_text(f"{NO_PROCESS}\n{rest}")


def _tail(log: Path) -> str:
    with contextlib.suppress(OSError):
        return log.read_text(errors="replace")[-1500:].strip()
    return ""
