"""What webhooks hear of distillation: ids and figures, and not a word of what was said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pytest_django import Settings

from agentmemory.models import Agent
from distillation.models import Cursor, DistillationPass
from distillation.services import distilling, operations, telling
from sessions_exec import faults
from sessions_exec.models import Delivery, Webhook
from sessions_exec.models.webhooks import Event
from tests.distillation.conftest import Tell, cursor_of
from tests.support import model_server
from tests.support.model_server import ModelServer

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def webhook(agent: Agent) -> Webhook:
    return Webhook.objects.create(space=agent.space, name="w", url="https://w.example/", events=Event.values, salt="s")


def told() -> list[tuple[str, dict[str, Any]]]:
    return [(row.event, row.body["data"]) for row in Delivery.objects.order_by("pk")]


def test_a_finished_pass_is_told_once_in_figures(server: ModelServer, tell: Tell) -> None:
    distilling.run_cursor(cursor_id=cursor_of(tell("The fox is red, zqcanary.")).pk)
    row = DistillationPass.objects.get()
    ((event, data),) = told()
    assert event == "pass.finished"
    assert (data["space"], data["agent"], data["session"], data["pass"]) == ("acme", "ada", "s1", row.pk)
    assert (data["start"], data["end"], data["outcome"], data["written"]) == (0, 2, "applied", len(row.written))
    assert "zqcanary" not in json.dumps(data)


def test_a_failed_pass_is_told_by_the_kind_of_its_failure_alone(server: ModelServer, tell: Tell) -> None:
    server.script(model_server.raw_text("zqcanary is no JSON"))
    distilling.run_pass(cursor_id=cursor_of(tell("A fact.")).pk)
    ((event, data),) = told()
    assert (event, data["outcome"], data["failure"]) == ("pass.failed", "failed", "malformed")
    assert "zqcanary" not in json.dumps(data)


def test_d20_a_quarantine_is_told_each_time_that_somebody_has_to_decide(server: ModelServer, tell: Tell) -> None:
    cursor = cursor_of(tell("Poison."))
    server.script(*[model_server.raw_text("nothing")] * 4)
    for _ in range(3):
        Cursor.objects.update(next_attempt_at=None)
        distilling.run_pass(cursor_id=cursor.pk)
    held = cursor.quarantines.get()
    operations.release_quarantine(quarantine_id=held.pk, operator="olga", reason="again")
    distilling.run_pass(cursor_id=cursor.pk)
    quarantined = [data for event, data in told() if event == "message.quarantined"]
    expected = {"space": "acme", "agent": "ada", "session": "s1", "uid": "u1", "seq": 1, "failures": 3}
    assert quarantined == [expected, expected]


def test_d21_a_spent_budget_is_told_once_a_day(server: ModelServer, tell: Tell, settings: Settings) -> None:
    settings.AGENTMEMORY_DAILY_TOKENS = 1
    distilling.run_cursor(cursor_id=cursor_of(tell("One fact here.")).pk)
    telling.spent(DistillationPass.objects.get())
    reached = [data for event, data in told() if event == "budget.reached"]
    assert [(data["space"], data["budget"]) for data in reached] == [("acme", 1)]
    assert reached[0]["tokens"] >= 1


def test_what_a_pass_tells_and_what_it_does_are_one(server: ModelServer, tell: Tell) -> None:
    def die(point: str) -> None:
        if point == "commit.before":
            raise SystemExit

    faults.install(die)
    try:
        with pytest.raises(SystemExit):
            distilling.run_pass(cursor_id=cursor_of(tell("A fact.")).pk)
    finally:
        faults.install(None)
    assert told() == []
