"""A3: combinations of settings that would break a guarantee are refused at the start."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings

from config import checks


def ids(**changed: Any) -> list[str | None]:
    with override_settings(**changed):
        return [found.id for found in checks.check_settings(None)]


def queue(**changed: Any) -> dict[str, Any]:
    return {"Q_CLUSTER": {**settings.Q_CLUSTER, **changed}}


def test_the_defaults_pass() -> None:
    assert ids() == []


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"AGENTMEMORY_CALL_TIMEOUT": 300.0}, "agentmemory.E001"),
        ({"AGENTMEMORY_BACKOFF_BASE": 1800.0}, "agentmemory.E002"),
        ({"AGENTMEMORY_BACKOFF_CAP": 1.0}, "agentmemory.E003"),
        ({"AGENTMEMORY_EXECUTION_LEASE": 0.01}, "agentmemory.E004"),
    ],
)
def test_a3_settings_that_contradict_each_other_are_refused(changed: dict[str, Any], expected: str) -> None:
    assert ids(**changed) == [expected]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"retry": 600}, "agentmemory.E005"),
        ({"timeout": 120}, "agentmemory.E006"),
        ({"orm": "other"}, "agentmemory.E007"),
        ({"sync": True}, "agentmemory.E007"),
        ({"queue_limit": 4}, "agentmemory.E008"),
        ({"bulk": 2}, "agentmemory.E008"),
    ],
)
def test_a3_a_queue_that_delivers_too_often_or_elsewhere_is_refused(changed: dict[str, Any], expected: str) -> None:
    assert ids(**queue(**changed)) == [expected]
