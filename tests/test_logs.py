"""Logs are lines of JSON with ids, and never content."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from config import logs


def line(name: str, message: str, *arguments: object, **extra: object) -> dict[str, Any]:
    record = logging.getLogger(name).makeRecord(
        name, logging.INFO, __file__, 1, message, arguments, sys.exc_info(), extra=extra
    )
    found: dict[str, Any] = json.loads(logs.JsonFormatter().format(record))
    return found


def test_a_line_has_its_action_and_ids() -> None:
    found = line("agentmemory.x", "Pass %s", "applied", action="pass.applied", pass_id=7, cursor_id=None)
    assert (found["level"], found["action"], found["pass_id"]) == ("info", "pass.applied", 7)
    assert found["message"] == "Pass applied"
    assert found["time"].endswith("+00:00")


def test_an_exceptions_text_is_left_out() -> None:
    try:
        raise ValueError("the row holds hunter2")
    except ValueError:
        found = line("agentmemory.x", "Failed", action="x")
    assert found["error"] == "ValueError"
    assert "test_logs.py" in found["frames"][-1]
    assert "hunter2" not in json.dumps(found)


def test_a_requests_path_is_left_out() -> None:
    for status, said in ({"status_code": 500}, "Internal Server Error"), ({}, "%s: %s"):
        found = line("django.request", "%s: %s", "Server Error", "/memories/hunter2", request=object(), **status)
        assert found["message"] == said
        assert "hunter2" not in json.dumps(found)
