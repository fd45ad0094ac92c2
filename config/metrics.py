"""Figures for a scraper, read from the database when it asks: the same from whichever process answers.

Every query is bounded (A4). A count stops at `MOST`, whatever lies behind; what cannot be counted is the planner's
estimate. Nothing is counted in a process: with several of them such figures lie.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.db import connection
from django.db.models import Max, QuerySet, Sum
from django.utils import timezone
from prometheus_client import CollectorRegistry, exposition
from prometheus_client.core import GaugeMetricFamily

from agentmemory.models import Memory
from config import health
from distillation.models import DistillationPass, Quarantine
from distillation.services import overview, states
from sessions_exec import queue
from sessions_exec.models import Execution, Heartbeat, Input, Recovery, TaskRun
from sessions_exec.services import heartbeats

MOST = 10_000
RECENT = timedelta(hours=1)


def page(accepts: str) -> tuple[bytes, str]:
    """All figures in the format that a scraper accepts, and the name of that format."""
    registry = CollectorRegistry()
    registry.register(_Figures())
    encode, media_type = exposition.choose_encoder(accepts)
    return encode(registry), media_type


class _Figures:
    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield from _distillation()
        yield from _recent_passes()
        yield from _cluster()
        yield from _sessions()
        yield from _memories()


def _distillation() -> Iterator[GaugeMetricFamily]:
    yield _labelled("cursors", "Sessions that are behind, by state.", "state", states.counted(most=MOST))
    waiting = health.oldest_waiting()
    oldest = waiting.age.total_seconds() if waiting else 0.0
    yield _one("oldest_waiting_seconds", "Age of the oldest finished turn that is not distilled.", oldest)
    standing = overview.standing()
    yield _one("tokens_today", "Tokens of distillation since midnight (UTC).", standing.tokens_today)
    if standing.budget is not None:
        yield _one("tokens_budget", "Tokens that a day may have.", standing.budget)
    yield _one("providers_paused", "Providers that nothing calls now.", len(standing.paused))
    held = Quarantine.objects.filter(state=Quarantine.State.HELD)
    yield _one("quarantined_messages", "Messages that wait for a decision.", _count(held))


def _recent_passes() -> Iterator[GaugeMetricFamily]:
    """From the newest rows, which are in the order of their time."""
    since = timezone.now() - RECENT
    columns = ("started_at", "outcome", "provider_name", "input_tokens", "output_tokens", "cost")
    newest = DistillationPass.objects.order_by("-pk").values_list(*columns)[:MOST]
    outcomes: Counter[str] = Counter(dict.fromkeys(DistillationPass.Outcome.values, 0))
    tokens: Counter[tuple[str, str]] = Counter()
    money: Counter[str] = Counter()
    for started_at, outcome, provider, tokens_in, tokens_out, cost in newest:
        if started_at < since:
            continue
        outcomes[outcome] += 1
        tokens[provider, "in"] += tokens_in
        tokens[provider, "out"] += tokens_out
        money[provider] += cost or 0
    yield _labelled("passes_last_hour", "Passes that began in the last hour, by outcome.", "outcome", outcomes)
    family = _family("tokens_last_hour", "Tokens of those passes.", "provider", "direction")
    for (provider, direction), count in tokens.items():
        family.add_metric([provider, direction], count)
    yield family
    yield _labelled("cost_last_hour_dollars", "What those passes cost.", "provider", money)


def _cluster() -> Iterator[GaugeMetricFamily]:
    waiting = queue.waiting()
    yield _one("queue_tasks", "Tasks that wait in the queue.", waiting.count)
    yield _one("tasks_running", "Tasks in hand.", _count(TaskRun.objects.all()))
    known = Heartbeat.objects.aggregate(last=Max("beat_at"), restarts=Sum("restarts"))
    yield _one("cluster_up", "Whether a task cluster gives a sign of life.", float(heartbeats.alive()))
    if known["last"] is not None:
        age = (timezone.now() - known["last"]).total_seconds()
        yield _one("heartbeat_age_seconds", "Since the newest heartbeat.", max(0.0, age))
    yield _one("cluster_restarts", "Restarts by the watchdog of the clusters that are known.", known["restarts"] or 0)


def _sessions() -> Iterator[GaugeMetricFamily]:
    executions = {"live": _count(Execution.objects.held().live()), "expired": _count(Execution.objects.expired())}
    yield _labelled("executions", "Sessions that somebody runs, or ran until the time was over.", "state", executions)
    yield _one("inputs_waiting", "Inputs that wait for their session.", _count(Input.objects.pending()))
    newest = Recovery.objects.order_by("-pk").values_list("recovered_at", flat=True)[:MOST]
    since = timezone.now() - RECENT
    recovered = sum(at >= since for at in newest)
    yield _one("recoveries_last_hour", "Executions that were recovered in the last hour.", recovered)


def _memories() -> Iterator[GaugeMetricFamily]:
    """The planner's estimates: nothing before the table was analysed for the first time."""
    table = Memory._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT unnest(s.most_common_vals::text::text[]), unnest(s.most_common_freqs) * c.reltuples "
            "FROM pg_stats s JOIN pg_class c ON c.oid = to_regclass(%s) "
            "WHERE s.schemaname = current_schema() AND s.tablename = %s AND s.attname = 'origin'",
            [table, table],
        )
        found = {str(origin): float(count) for origin, count in cursor.fetchall()}
    estimates = {origin: found.get(origin, 0.0) for origin in Memory.Origin.values} if found else {}
    yield _labelled("memories_estimate", "Memories of all standings, by origin.", "origin", estimates)


def _family(name: str, meaning: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"agentmemory_{name}", meaning, labels=labels)


def _one(name: str, meaning: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"agentmemory_{name}", meaning, value=value)


def _labelled(name: str, meaning: str, label: str, values: Any) -> GaugeMetricFamily:
    family = _family(name, meaning, label)
    for word, value in values.items():
        family.add_metric([str(word)], float(value))
    return family


def _count(rows: QuerySet[Any]) -> int:
    return rows.order_by().values("pk")[:MOST].count()
