"""The embedded PostgreSQL: attach to the running server, or start one for as long as someone needs it.

Every process takes a hold of its own, children of `up` too: a *shared* `flock` on `embedded.holders`, which
the kernel drops however the process ends. Forked children share their parent's hold. Whoever leaves tries to
get the lock exclusively; who succeeds was the last one and stops the server. A server that is left over,
because its last holder was killed, is found running by the next one and stopped by it. Starting and stopping
are serialised by `embedded.lock`.

The server listens on a socket alone, in a folder that only its owner may enter: no password, no port.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from config import postgres, programs

USER = "agentmemory"
DATABASE = "agentmemory"
# A socket's path may have 107 bytes on Linux and 103 on macOS; its name takes some of them.
LONGEST_SOCKET_PATH = 100


@dataclass(frozen=True)
class DatabaseAddress:
    """Where the server is reached: `host` is the folder of its socket."""

    host: str
    name: str
    user: str


@dataclass
class _Hold:
    """This process's share in a server."""

    data_dir: Path
    holders: IO[str]
    process: int = field(default_factory=os.getpid)


_holds: dict[Path, _Hold] = {}
_guard = threading.Lock()


def address(data_dir: Path) -> DatabaseAddress:
    """Where the server of this data folder is, or will be, reached; starts nothing."""
    return DatabaseAddress(host=str(_socket_folder(_cluster(data_dir))), name=DATABASE, user=USER)


def ensure(data_dir: Path, *, durable: bool = True) -> DatabaseAddress:
    """Hold the server of `data_dir`, started if it does not run, until `release` or the process's end.

    `durable=False` trades safety against a power cut for speed, for throwaway databases. Raises
    `programs.CannotStart` with a sentence for the operator.
    """
    data_dir = data_dir.resolve()
    try:
        return _ensure(data_dir, durable=durable)
    except OSError as error:
        what = f"{error.strerror} ({error.filename})" if error.filename else error.strerror
        raise programs.CannotStart(
            f"the database cannot be kept in {data_dir}: {what}. "
            "Let AGENTMEMORY_DATA_DIR name a folder that can be written, or set DATABASE_URL."
        ) from error


def _ensure(data_dir: Path, *, durable: bool) -> DatabaseAddress:
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _guard:
        hold = _holds.get(data_dir)
        # A forked child shares the lock of its parent, which lasts as long as the child does.
        holders = hold.holders if hold else open(data_dir / "embedded.holders", "w")  # noqa: SIM115
        with _starting(data_dir):
            fcntl.flock(holders, fcntl.LOCK_SH)
            try:
                _start(_cluster(data_dir), durable=durable)
            except BaseException:
                if hold is None:
                    holders.close()
                raise
        if hold is None:
            _holds[data_dir] = _Hold(data_dir, holders)
    _watch_for_the_end()
    return address(data_dir)


def release() -> None:
    """Give up every hold of this process; the last holder of a server stops it."""
    with _guard:
        for data_dir, hold in list(_holds.items()):
            del _holds[data_dir]
            # A forked child must not answer for its parent: they share one lock.
            if hold.process == os.getpid():
                _leave(hold)
            hold.holders.close()


@contextlib.contextmanager
def running(data_dir: Path, *, durable: bool = True) -> Iterator[DatabaseAddress]:
    """Hold the server for the length of a block, and release every hold after it."""
    found = ensure(data_dir, durable=durable)
    try:
        yield found
    finally:
        release()


def _leave(hold: _Hold) -> None:
    with _starting(hold.data_dir):
        try:
            fcntl.flock(hold.holders, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        postgres.stop(_cluster(hold.data_dir))


def _start(cluster: Path, *, durable: bool) -> None:
    socket_folder = _socket_folder(cluster)
    if postgres.answers(socket_folder, user=USER):
        return
    if not (cluster / "PG_VERSION").exists():
        postgres.create(cluster, user=USER, durable=durable)
    postgres.start(cluster, socket_folder=socket_folder, durable=durable)
    postgres.create_database(socket_folder, user=USER, name=DATABASE)


@contextlib.contextmanager
def _starting(data_dir: Path) -> Iterator[None]:
    """One process at a time starts or stops the server."""
    with open(data_dir / "embedded.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _cluster(data_dir: Path) -> Path:
    return data_dir.resolve() / "postgres"


def _socket_folder(cluster: Path) -> Path:
    if len(os.fsencode(cluster / ".s.PGSQL.5432")) < LONGEST_SOCKET_PATH:
        return cluster
    name = hashlib.sha256(os.fsencode(cluster)).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"agentmemory-{os.getuid()}-{name}"


def _watch_for_the_end() -> None:
    """Release at exit, and let SIGTERM be an exit where nobody has said otherwise."""
    atexit.unregister(release)
    atexit.register(release)
    in_main_thread = threading.current_thread() is threading.main_thread()
    if in_main_thread and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
