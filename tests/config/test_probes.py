"""The probes: up, ready, working."""

from __future__ import annotations

import pytest
from django.db import DatabaseError, connection
from django.test import Client

from config import health
from sessions_exec.services import heartbeats


def test_health_asks_nothing_of_anything_else(client: Client, db: None) -> None:
    with connection.execute_wrapper(_refuse):
        answer = client.get("/healthz")
    assert (answer.status_code, answer.content) == (200, b"ok\n")


def _refuse(*_: object) -> None:
    raise AssertionError("a query")


def test_ready_when_the_database_answers_and_is_migrated(
    client: Client, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.get("/readyz").status_code == 200
    monkeypatch.setattr(health, "unapplied", lambda: ["agentmemory.0099_later"])
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert b"migrate" in answer.content


def test_not_ready_without_a_database(client: Client, db: None) -> None:
    with connection.execute_wrapper(_fail):
        assert client.get("/readyz").status_code == 503
        assert client.get("/progressz").status_code == 503


def _fail(*_: object) -> None:
    raise DatabaseError("gone")


def test_d26_progress_fails_with_one_line_without_a_heartbeat(client: Client, db: None) -> None:
    answer = client.get("/progressz")
    assert answer.status_code == 503
    assert answer.content.count(b"\n") == 1
    heartbeats.beat(worker="w", host="h", pid=1, processes=2)
    assert client.get("/progressz").status_code == 200
