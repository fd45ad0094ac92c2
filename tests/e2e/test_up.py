"""The whole service as one command: it migrates, listens, works, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest

from sessions_exec import queue
from sessions_exec.models import Heartbeat, Tick
from tests.support import clusters

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.e2e]


def port(process: subprocess.Popen[str]) -> int:
    """Where it listens, once it says so."""
    said = clusters.until(lambda: _said(process), within=60)
    return int(said.group(1))


def _said(process: subprocess.Popen[str]) -> re.Match[str] | None:
    text = clusters.output(process)
    assert process.poll() is None, text
    return re.search(r"^Address: http://127\.0\.0\.1:(\d+)$", text, re.MULTILINE)


def get(number: int, path: str) -> int:
    """The status of an answer; 0: none."""
    asking = HTTPConnection("127.0.0.1", number, timeout=5)
    try:
        asking.request("GET", path)
        return asking.getresponse().status
    except (OSError, HTTPException):
        return 0
    finally:
        asking.close()


def test_it_serves_and_works_and_leaves_nothing_behind() -> None:
    with clusters.running("up", "--port", "0") as process:
        number = port(process)
        assert get(number, "/admin/login/") == 200
        assert get(number, "/readyz") == 200
        queue.enqueue("tests.support.work.remember", 1)
        clusters.until(lambda: Tick.objects.filter(name="remembered 1").exists())
        family = clusters.tree(process.pid)
        assert clusters.stop(process, signal.SIGINT) == 0
        assert clusters.living(family) == []
    assert get(number, "/admin/login/") == 0
    assert not Heartbeat.objects.exists()


def test_without_a_worker_it_serves_alone() -> None:
    with clusters.running("up", "--port", "0", "--no-worker") as process:
        assert get(port(process), "/admin/login/") == 200
        assert not Heartbeat.objects.exists()
        assert len(clusters.tree(process.pid)) == 1
        assert clusters.stop(process) == 0


def test_a_taken_port_is_said_before_anything_starts() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        with clusters.running("up", "--port", str(number)) as process:
            assert process.wait(60) == 1
            said = clusters.output(process)
    assert f"Cannot listen on 127.0.0.1, port {number}" in said
    assert "--port" in said
    assert "Running migrations" not in said


def test_a_child_that_dies_is_started_again() -> None:
    with clusters.running("up", "--port", "0") as process:
        number = port(process)
        for child in clusters.tree(process.pid)[:2]:
            child.kill()
        clusters.until(lambda: get(number, "/readyz") == 200)
        queue.enqueue("tests.support.work.remember", 1)
        clusters.until(lambda: Tick.objects.filter(name="remembered 1").exists())


def test_everything_ends_when_it_is_killed() -> None:
    with clusters.running("up", "--port", "0") as process:
        number = port(process)
        family = clusters.tree(process.pid)
        process.kill()
        process.wait()
        clusters.until(lambda: not clusters.living(family), within=10)
    assert get(number, "/healthz") == 0


def words(process: subprocess.Popen[str]) -> dict[str, str]:
    """The four words that the demonstration says, each alone on a line."""
    port(process)
    found = re.findall(
        r"^(Address|Login|Password|Token): (\S+)$",
        clusters.until(lambda: said if "Token: " in (said := clusters.output(process)) else None),
        re.MULTILINE,
    )
    assert [name for name, _ in found] == ["Address", "Login", "Password", "Token"]
    return dict(found)


def test_the_demonstration_says_how_to_get_in_and_repeats_nothing(tmp_path: Path) -> None:
    from agentmemory.callers import Caller
    from agentmemory.models import Memory, Message
    from agentmemory.services import tokens
    from distillation.models import DistillationPass

    def rows() -> tuple[int, ...]:
        return Memory.objects.count(), Message.objects.count(), DistillationPass.objects.count()

    values = {"DJANGO_SETTINGS_MODULE": "config.settings", "AGENTMEMORY_ENV_FILE": "none"}
    data = {**values, "AGENTMEMORY_DATA_DIR": str(tmp_path), "AGENTMEMORY_EMBEDDER": "none"}
    with clusters.running("demo", "--port", "0", **data) as process:
        first = words(process)
        there = rows()
        assert clusters.stop(process) == 0
    caller = tokens.authenticate(first["Token"])
    assert isinstance(caller, Caller)
    assert Memory.objects.visible_to(caller, scope="mine").filter(origin="distilled").exists()
    assert (tmp_path / "demo.json").stat().st_mode & 0o777 == 0o600
    with clusters.running("demo", "--port", "0", **data) as process:
        second = words(process)
        assert clusters.stop(process) == 0
    assert {**second, "Address": ""} == {**first, "Address": ""}
    assert rows() == there


def test_an_embedded_database_that_is_killed_is_started_again(tmp_path: Path) -> None:
    values = {"DJANGO_SETTINGS_MODULE": "config.settings", "AGENTMEMORY_ENV_FILE": "none", "DATABASE_URL": ""}
    with clusters.running("up", "--port", "0", **values, AGENTMEMORY_DATA_DIR=str(tmp_path)) as process:
        number = port(process)
        place = tmp_path / "postgres"
        killed = clusters.until(lambda: clusters.postmaster(place))
        os.kill(killed, signal.SIGKILL)
        # How long it is away is not asked: it may be back before anybody looks.
        clusters.until(lambda: clusters.postmaster(place) not in {None, killed})
        clusters.until(lambda: get(number, "/readyz") == 200)
        family = clusters.tree(process.pid)
        assert clusters.stop(process) == 0
        assert clusters.living(family) == []
    assert not (tmp_path / "postgres" / "postmaster.pid").exists()
