"""Figures for a scraper: there for who shows the token, right whichever process answers, and bounded."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from distillation.models import Cursor, DistillationPass
from sessions_exec.services import heartbeats
from tests.factories import MemoryFactory
from tests.support.filled import fill

pytestmark = pytest.mark.django_db
TOKEN = "a-token-of-a-scraper"


@pytest.fixture
def scraper(settings: Any) -> Client:
    settings.AGENTMEMORY_METRICS_TOKEN = TOKEN
    return Client(headers={"Authorization": f"Bearer {TOKEN}"})


def scraped(client: Client) -> dict[str, float]:
    """Samples by their names and labels."""
    answer = client.get("/metrics")
    assert answer.status_code == 200
    found = {}
    for family in text_string_to_metric_families(answer.content.decode()):
        for sample in family.samples:
            labels = ",".join(sorted(sample.labels.values()))
            found[sample.name.removeprefix("agentmemory_") + (f"[{labels}]" if labels else "")] = sample.value
    return found


def test_without_the_token_there_is_nothing_there(settings: Any) -> None:
    for configured in ("", TOKEN):
        settings.AGENTMEMORY_METRICS_TOKEN = configured
        for shown in ("", "Bearer ", "Bearer wrong", TOKEN[:-1]):
            with CaptureQueriesContext(connection) as asked:
                answer = Client(headers={"Authorization": shown}).get("/metrics")
            assert (answer.status_code, len(asked)) == (404, 0)


def test_what_is_for_reading_says_so_to_every_other_method(scraper: Client) -> None:
    strict = Client(enforce_csrf_checks=True)
    for place in ("/metrics", "/healthz", "/readyz", "/progressz"):
        for client in (strict, scraper):
            answer = client.post(place)
            assert (answer.status_code, answer["Allow"]) == (405, "GET, HEAD")
            assert answer.content == b"this is for GET alone\n"


def test_an_empty_installation_has_its_figures_at_zero(scraper: Client) -> None:
    found = scraped(scraper)
    assert found["cursors[due]"] == found["oldest_waiting_seconds"] == found["queue_tasks"] == 0
    assert found["cluster_up"] == 0


def test_the_figures_are_those_of_the_database(scraper: Client) -> None:
    fill()
    now = timezone.now()
    Cursor.objects.update(position=0, watermark=6, due_since=now - timedelta(hours=2))
    row = DistillationPass.objects.get()
    DistillationPass.objects.filter(pk=row.pk).update(
        outcome="failed", provider_name="glm", input_tokens=1200, output_tokens=34, cost="0.5"
    )
    values = {"space": row.space, "agent": row.agent, "session_name": "s1", "start": 0, "end": 2, "outcome": "failed"}
    DistillationPass.objects.create(**values, epoch=9, started_at=now - timedelta(hours=3))
    heartbeats.beat(worker="w", host="h", pid=1, processes=2)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE agentmemory_memory")

    found = scraped(scraper)

    assert found["cursors[due]"] == Cursor.objects.count()
    assert 7200 <= found["oldest_waiting_seconds"] < 7260
    assert (found["passes_last_hour[failed]"], found["passes_last_hour[applied]"]) == (1, 0)
    assert (found["tokens_last_hour[glm,in]"], found["tokens_last_hour[glm,out]"]) == (1200, 34)
    assert found["cost_last_hour_dollars[glm]"] == 0.5
    assert found["quarantined_messages"] == found["cluster_up"] == found["executions[live]"] == 1
    assert found["inputs_waiting"] == 1
    assert found["memories_estimate[distilled]"] > 0

    Cursor.objects.update(next_attempt_at=now + timedelta(hours=1))
    assert scraped(scraper)["cursors[backing_off]"] == Cursor.objects.count()
    Cursor.objects.update(next_attempt_at=None, waits_for="blocked: provider glm paused")
    assert scraped(scraper)["cursors[blocked]"] == Cursor.objects.count()


def test_more_rows_cost_no_more_queries(scraper: Client) -> None:
    with CaptureQueriesContext(connection) as before:
        scraper.get("/metrics")
    fill()
    MemoryFactory.create_batch(5)
    with CaptureQueriesContext(connection) as after:
        scraper.get("/metrics")
    assert len(after) <= len(before) + 3
