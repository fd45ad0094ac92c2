"""What is wrong with an installation, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings
from django.core import checks
from django.db import DatabaseError
from django.utils import timezone

from agentmemory.models import Agent, Provider
from agentmemory.search import embeddings, vector_tables
from agentmemory.services import embedding, providers
from config import doctor_database, health, regular
from config.findings import Finding
from distillation.services import resolution
from sessions_exec import queue
from sessions_exec.models import Heartbeat
from sessions_exec.services import heartbeats

MOST_AGENTS = 200
# Of the watchdog's patience: a backlog may wait that long before it is worth a note.
BACKLOG = 5


def examine() -> list[Finding]:
    """Everything that is found, in the order in which it should be set right."""
    found = list(_settings())
    try:
        found += doctor_database.reached()
        if any(finding.level == "wrong" for finding in found):
            return found
        for part in (doctor_database.fits, _vectors, _cluster, _schedules, _providers, _work):
            found += part()
    except DatabaseError as error:
        found.append(doctor_database.refused(error))
    return found


def _settings() -> Iterator[Finding]:
    errors = [message for message in checks.run_checks() if message.is_serious()]
    for error in errors:
        yield Finding(level="wrong", about="settings", line=error.msg, advice=error.hint or "")
    if not errors:
        yield Finding(level="ok", about="settings", line="the system checks find nothing")


def _vectors() -> Iterator[Finding]:
    """Search by meaning is optional: what is missing for it is a note, and what to do about it."""
    about = "search by meaning"
    if settings.AGENTMEMORY_EMBEDDER == "none":
        yield Finding(level="ok", about=about, line="switched off: search goes by words alone")
    elif embeddings.chosen() is None:
        advice = "Install the extra `vectors`, and run `python manage.py migrate`."
        yield Finding(level="note", about=about, line="packages are missing: search goes by words alone", advice=advice)
    elif not vector_tables.are_there():
        line = "the database has no tables of vectors: search goes by words alone"
        advice = (
            "Run `python manage.py migrate`. If it stays so, a superuser has to CREATE EXTENSION vector first; "
            "a server that has no such extension needs the package pgvector."
        )
        yield Finding(level="note", about=about, line=line, advice=advice)
    else:
        yield _vectors_of(embedding.waiting())


def _vectors_of(waiting: int) -> Finding:
    if not waiting:
        return Finding(level="ok", about="search by meaning", line="every row has its vector")
    advice = "A running worker makes them when nothing else waits; until then words find these rows."
    line = f"{waiting} rows wait for their vectors"
    return Finding(level="note", about="search by meaning", line=line, advice=advice)


def _cluster() -> Iterator[Finding]:
    if not heartbeats.alive():
        advice = "Start one: `python manage.py worker`, or `up`, which brings its own."
        yield Finding(level="wrong", about="task cluster", line="none gives a sign of life", advice=advice)
    living = heartbeats.living()
    for worker in Heartbeat.objects.all()[:20]:
        if worker.worker in living:
            line = f"{worker.worker} works with {worker.processes} processes"
            yield Finding(level="ok", about="task cluster", line=line)
        if worker.restarts:
            line = (
                f"{worker.worker} was started again {worker.restarts} times, last because {worker.last_restart_reason}"
            )
            yield Finding(level="note", about="task cluster", line=line)
    waiting = queue.waiting()
    if waiting.age > BACKLOG * settings.AGENTMEMORY_WATCHDOG and waiting.count:
        line = f"{waiting.count} tasks wait, the oldest for {waiting.age:.0f} s"
        advice = "More workers: AGENTMEMORY_WORKERS, or another `python manage.py worker`."
        yield Finding(level="note", about="queue", line=line, advice=advice)


def _schedules() -> Iterator[Finding]:
    missing = queue.missing_schedules(regular.schedules())
    if missing:
        advice = "A running worker makes and repairs them within a minute."
        line = f"missing or damaged: {', '.join(missing)}"
        yield Finding(level="wrong", about="schedules", line=line, advice=advice)
    for name in queue.unsound_schedules():
        advice = "Remove it; it was put to rest, since it would stop all others."
        yield Finding(level="note", about="schedules", line=f"{name} cannot be read", advice=advice)
    if not missing:
        yield Finding(level="ok", about="schedules", line="ours are in place")


def _providers() -> Iterator[Finding]:
    used = {
        (resolved.provider, resolution.unusable(resolved) or resolution.obstacle(resolved)) for resolved in _in_use()
    }
    for provider, obstacle in sorted(used, key=lambda pair: pair[0].name):
        about = f"provider {provider.name}"
        if obstacle:
            yield Finding(level="wrong", about=about, line=obstacle, advice=_advice(provider))
        elif line := providers.pause_line(provider, now=timezone.now(), private=True):
            advice = "Resume it in /admin/." if provider.stopped_at else "Check its key and its quota."
            yield Finding(level="wrong", about=about, line=line[:300], advice=advice)
        else:
            what = (
                "no key is set, so it stands in for a model" if provider.kind == Provider.Kind.OFFLINE else "has a key"
            )
            yield Finding(level="ok", about=about, line=what)
    named = {provider.pk for provider, _ in used}
    for provider in Provider.objects.enabled().filter(kind=Provider.Kind.ANTHROPIC).exclude(pk__in=named)[:50]:
        if providers.key(provider) is None:
            line = f"{provider.key_variable} is not set; nobody uses it now"
            yield Finding(level="note", about=f"provider {provider.name}", line=line, advice=_advice(provider))


def _in_use() -> Iterator[resolution.Resolution]:
    yield from map(resolution.resolve, Agent.objects.working().select_related("space", "provider")[:MOST_AGENTS])
    provider = providers.built_in()
    yield resolution.Resolution(provider=provider, model=provider.default_model, reason="built-in default")


def _advice(provider: Provider) -> str:
    if provider.kind == Provider.Kind.ACP:
        return "Give the agents that use it another provider, or the space a default model."
    return f"Set {provider.key_variable} in the environment or in `.env`, and start again."


def _work() -> Iterator[Finding]:
    problem = health.progress() if heartbeats.alive() else None
    waiting = health.oldest_waiting()
    if problem:
        yield Finding(level="wrong", about="distillation", line=problem, advice="See Waiting in /admin/.")
    elif waiting is not None:
        yield Finding(level="note", about="distillation", line=health.waiting_line(waiting))
    else:
        yield Finding(level="ok", about="distillation", line="every finished turn is distilled")
