"""What `doctor` says of an installation that is broken: what is wrong, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection
from django.utils import timezone

from config import doctor, doctor_database, regular
from config.findings import Finding
from sessions_exec import queue
from sessions_exec.leases import ClockTimestamp
from sessions_exec.models import Heartbeat
from sessions_exec.services import heartbeats
from tests.factories import MessageFactory, SessionFactory
from tests.support.running import say

pytestmark = pytest.mark.django_db


def about(findings: Iterator[Finding], what: str) -> list[Finding]:
    return [finding for finding in findings if finding.about == what and finding.level != "ok"]


def refuse(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OperationalError(said)

    monkeypatch.setattr(connection, "ensure_connection", fail)


SERVER = 'connection failed: connection to server at "192.0.2.1", port 5432 failed: '
SAID = {
    "nobody listens": (f"{SERVER}Connection refused\nIs the server running?", "Start the server, or correct its host"),
    "no such host": ("failed to resolve host 'db.invalid': [Errno -2] Name or service not known", "correct its host"),
    "a wrong password": (
        f'{SERVER}FATAL:  password authentication failed for user "u"',
        "The server runs and does not let this user in: correct user and password",
    ),
    "no password": (f"{SERVER}fe_sendauth: no password supplied", "correct user and password"),
    "no such database": (f'{SERVER}FATAL:  database "m" does not exist', "Create the database there"),
    "no TLS": (f"{SERVER}server does not support SSL, but SSL was required", "Correct `sslmode`"),
    "a full disk": ('could not extend file "base/1": No space left on device', "Free space on its disk"),
    "anything else": ("the server is in a bad mood", "Check DATABASE_URL, and whether the server runs"),
}


@pytest.mark.parametrize("kind", SAID)
def test_a_database_that_is_not_reached_is_told_with_what_to_do(
    kind: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, advice = SAID[kind]
    settings.AGENTMEMORY_EMBEDDED = False
    refuse(said, monkeypatch)
    out = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("doctor", stdout=out)
    assert ended.value.code == 1
    assert f"database: it does not answer: {said.partition(chr(10))[0]}\n" in out.getvalue()
    assert advice in out.getvalue()


def test_who_has_the_embedded_database_is_not_sent_to_an_address(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.AGENTMEMORY_EMBEDDED, settings.AGENTMEMORY_DATA_DIR = True, Path("/data")
    refuse("connection is bad: No such file or directory", monkeypatch)
    told = doctor.examine()[-1]
    assert told.advice == "Start again; if it stays so, see /data/postgres/server.log."


def test_migrations_of_a_later_release_are_told_and_are_no_fault() -> None:
    assert about(doctor_database.reached(), "migrations") == []
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES ('agentmemory', '9999_later', now()), "
            "('somebody', '0001_else', now())"
        )
    (told,) = about(doctor_database.reached(), "migrations")
    assert (told.level, told.line) == (
        "note",
        "1 are of a later release than this one, the first is agentmemory.9999_later",
    )
    assert "start that release" in told.advice


@pytest.mark.parametrize(("seconds", "side"), [(3600, "ahead of"), (-3600, "behind")])
def test_a_clock_that_is_wrong_is_told(seconds: int, side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert about(doctor_database.fits(), "clock") == []
    real = timezone.now
    monkeypatch.setattr("config.doctor_database.timezone.now", lambda: real() + timedelta(seconds=seconds))
    (told,) = about(doctor_database.fits(), "clock")
    assert told.line.startswith("this machine's is 3")
    assert told.line.endswith(f" s {side} the database's")


def test_a_worker_is_alive_by_the_databases_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    queue.ensure_schedules(regular.schedules())
    for worker in ("alive", "silent"):
        heartbeats.beat(worker=worker, host="h", pid=1, processes=2)
    Heartbeat.objects.filter(worker="silent").update(beat_at=ClockTimestamp() - timedelta(minutes=5))
    real = timezone.now
    monkeypatch.setattr("config.doctor.timezone.now", lambda: real() + timedelta(hours=1))
    assert [finding.line for finding in doctor._cluster()] == ["alive works with 2 processes"]


def test_a_secret_key_that_has_changed_is_told_by_the_messages_that_it_does_not_know(settings: Any) -> None:
    session = SessionFactory.create()
    for number in range(doctor_database.FEWEST):
        say(session, f"m{number}", content=[{"type": "text", "text": f"Ä {number / 3}"}])
    assert about(doctor_database.fits(), "secret key") == []

    old, settings.SECRET_KEY = settings.SECRET_KEY, "another"
    (told,) = about(doctor_database.fits(), "secret key")
    assert told.level == "wrong"
    assert "Give SECRET_KEY the value that it had" in told.advice

    settings.SECRET_KEY_FALLBACKS = [old]
    assert about(doctor_database.fits(), "secret key") == []


def test_few_messages_or_some_that_were_changed_say_nothing_of_the_key() -> None:
    MessageFactory.create_batch(doctor_database.FEWEST - 1, digest="0" * 64)
    assert about(doctor_database.fits(), "secret key") == []
    MessageFactory.create_batch(doctor_database.FEWEST, digest="0" * 64)
    assert len(about(doctor_database.fits(), "secret key")) == 1
    say(SessionFactory.create(), "known")
    assert about(doctor_database.fits(), "secret key") == []
