"""The embedded PostgreSQL: shared by whoever needs it, stopped by the last, adopted when left over."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from config import embedded, postgres, programs

ROOT = Path(__file__).resolve().parent.parent
HOLDER = """
import sys
from pathlib import Path
from config import embedded
embedded.ensure(Path(sys.argv[1]), durable=False)
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def data_dir() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="am-e-", dir="/tmp"))  # mode 0700
    yield folder
    postgres.stop(folder / "postgres")
    shutil.rmtree(folder)


class Holder:
    """Another process that holds the server until it is told to go, or killed."""

    def __init__(self, data_dir: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(data_dir)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_until_held(self) -> Holder:
        assert self.process.stdout
        assert self.process.stdout.readline() == "held\n"
        return self

    def go(self) -> None:
        self.process.communicate("\n", timeout=40)

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        self.process.send_signal(how)
        self.process.communicate(timeout=40)


def postmaster(data_dir: Path) -> int:
    return int((data_dir / "postgres" / "postmaster.pid").read_text().split()[0])


def works(data_dir: Path) -> bool:
    where = embedded.address(data_dir)
    with (
        contextlib.suppress(psycopg.OperationalError),
        psycopg.connect(host=where.host, user=where.user, dbname=where.name, connect_timeout=5) as connection,
    ):
        return connection.execute("SELECT 1").fetchone() == (1,)
    return False


def test_two_starters_at_once_share_one_server_and_the_last_one_stops_it(data_dir: Path) -> None:
    first, second = Holder(data_dir), Holder(data_dir)
    first.wait_until_held()
    second.wait_until_held()
    server = postmaster(data_dir)
    first.go()
    assert works(data_dir)
    assert postmaster(data_dir) == server
    second.go()
    assert not works(data_dir)
    assert not psutil.pid_exists(server) or psutil.Process(server).status() == psutil.STATUS_ZOMBIE


def test_a_server_whose_holder_was_killed_is_adopted_and_stopped_by_the_next(data_dir: Path) -> None:
    Holder(data_dir).wait_until_held().kill()
    assert works(data_dir)
    server = postmaster(data_dir)
    heir = Holder(data_dir).wait_until_held()
    assert postmaster(data_dir) == server
    heir.go()
    assert not works(data_dir)


def test_a_holder_that_is_terminated_stops_its_server(data_dir: Path) -> None:
    Holder(data_dir).wait_until_held().kill(signal.SIGTERM)
    assert not works(data_dir)


def test_a_killed_server_is_started_again(data_dir: Path) -> None:
    first = Holder(data_dir).wait_until_held()
    server = postmaster(data_dir)
    os.kill(server, signal.SIGKILL)
    second = Holder(data_dir).wait_until_held()
    assert works(data_dir)
    assert postmaster(data_dir) != server
    first.go()
    assert works(data_dir)
    second.go()


def test_a_lock_file_from_before_a_restart_that_names_another_process_is_no_hindrance(data_dir: Path) -> None:
    Holder(data_dir).wait_until_held().go()
    stranger = subprocess.Popen(["sleep", "60"])
    cluster = data_dir / "postgres"
    left_over = f"{stranger.pid}\n{cluster}\n1\n5432\n{cluster}\n\n  999999 999999\nready   \n"
    (cluster / "postmaster.pid").write_text(left_over)
    (cluster / ".s.PGSQL.5432.lock").write_text(left_over)
    holder = Holder(data_dir).wait_until_held()
    assert works(data_dir)
    holder.go()
    stranger.kill()
    stranger.wait()


def test_an_interrupt_from_the_terminal_does_not_reach_the_server(data_dir: Path) -> None:
    holder = Holder(data_dir).wait_until_held()
    assert os.getpgid(postmaster(data_dir)) != os.getpgid(holder.process.pid)
    assert os.getsid(postmaster(data_dir)) != os.getsid(holder.process.pid)
    holder.go()


def test_the_servers_log_holds_neither_statements_nor_rows(data_dir: Path) -> None:
    holder = Holder(data_dir).wait_until_held()
    where = embedded.address(data_dir)
    with psycopg.connect(host=where.host, user=where.user, dbname=where.name, autocommit=True) as connection:
        connection.execute("CREATE TEMPORARY TABLE said (words text UNIQUE)")
        connection.execute("INSERT INTO said VALUES ('hunter2')")
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute("INSERT INTO said VALUES ('hunter2')")
    holder.go()
    log = (data_dir / "postgres" / postgres.LOG_FILE).read_text()
    assert "duplicate key" in log
    assert "hunter2" not in log


def test_a_folder_of_mode_700_with_quotes_and_spaces_serves(data_dir: Path) -> None:
    inner = data_dir / 'it\'s a "place"'
    holder = Holder(inner).wait_until_held()
    assert works(inner)
    assert inner.stat().st_mode & 0o777 == 0o700
    holder.go()
    postgres.stop(inner / "postgres")


def test_a_long_path_gets_its_socket_elsewhere_in_a_private_folder(data_dir: Path) -> None:
    deep = data_dir / ("x" * 90)
    holder = Holder(deep).wait_until_held()
    folder = Path(embedded.address(deep).host)
    assert len(str(folder)) < embedded.LONGEST_SOCKET_PATH
    assert folder.stat().st_mode & 0o077 == 0
    assert works(deep)
    holder.go()
    assert not works(deep)
    folder.rmdir()


def test_a_socket_folder_that_somebody_else_opened_is_refused(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = data_dir / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.setattr(embedded, "LONGEST_SOCKET_PATH", 10)
    Path(embedded.address(data_dir).host).mkdir(mode=0o755)
    with pytest.raises(programs.CannotStart, match="closed to others"), embedded.running(data_dir, durable=False):
        pass


def test_an_unfinished_creation_is_begun_again(data_dir: Path) -> None:
    (data_dir / "postgres.new" / "base").mkdir(parents=True)
    holder = Holder(data_dir).wait_until_held()
    assert works(data_dir)
    holder.go()


def test_a_forked_child_keeps_the_server_and_does_not_stop_it(data_dir: Path) -> None:
    program = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from config import embedded\n"
        "embedded.ensure(Path(sys.argv[1]), durable=False)\n"
        "if os.fork() == 0:\n"
        "    embedded.release()\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "print(embedded.postgres.answers(Path(embedded.address(Path(sys.argv[1])).host), user=embedded.USER))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(data_dir)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"
    assert not works(data_dir)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
class TestWithoutNamespaces:
    @pytest.fixture(autouse=True)
    def _no_namespaces(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(programs, "namespaces_work", lambda: False)

    def test_a_folder_that_the_stand_in_cannot_enter_is_named(self, data_dir: Path) -> None:
        inner = data_dir / "inner"
        inner.mkdir()
        with (
            pytest.raises(programs.CannotStart, match=f"cannot enter {data_dir}"),
            embedded.running(inner, durable=False),
        ):
            pass

    def test_the_stand_in_serves_from_an_open_folder(self, data_dir: Path) -> None:
        data_dir.chmod(0o711)
        user = programs.stand_in()
        assert user
        for folder in programs.folder().parents:
            if not folder.stat().st_mode & 0o001:
                pytest.skip(f"{user.pw_name} cannot reach PostgreSQL's programs through {folder}")
        with embedded.running(data_dir, durable=False):
            assert works(data_dir)
            assert (data_dir / "postgres").stat().st_uid == user.pw_uid
        assert not works(data_dir)


def test_a_missing_postgresql_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    programs.folder.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(programs, "SYSTEM", Path("/nowhere"))
    try:
        with pytest.raises(programs.CannotStart, match="set DATABASE_URL"):
            programs.folder()
    finally:
        programs.folder.cache_clear()


def test_a_folder_that_cannot_be_is_said_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(programs.CannotStart, match=r"Not a directory \(.*\)\. Let AGENTMEMORY_DATA_DIR"):
        embedded.ensure(tmp_path / "file" / "data")


def test_stopping_a_server_that_never_ran_is_no_error(data_dir: Path) -> None:
    started = time.monotonic()
    postgres.stop(data_dir / "postgres")
    assert time.monotonic() - started < 1
