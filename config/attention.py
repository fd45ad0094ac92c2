"""What the start page lists for a person: what only they can settle, and what happened last."""

from __future__ import annotations

from typing import Any

from django.core.cache import cache
from django.db.models.signals import post_save
from django.dispatch import receiver
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from agentmemory.console import links, permissions
from agentmemory.models import Activity, Consolidation, Memory
from agentmemory.services import inspection, naming, providers
from distillation.models import DistillationPass
from distillation.services import calls, overview
from sessions_exec.services import webhooks

# Those of memories take a search among the newest: they may be this many seconds behind.
NEEDS_KEPT = 15


def needs(request: HttpRequest, standing: overview.Standing) -> list[dict[str, Any]]:
    """Things that only a person can settle, five at most."""
    private, now = permissions.reads_private(request), timezone.now()
    found = [
        {
            "state": "paused",
            "text": f"Provider {provider.name} {providers.pause_line(provider, now=now, private=private)[:160]}",
            "url": links.change("agentmemory", "provider", provider.pk),
            "at": provider.stopped_at or provider.paused_until,
        }
        for provider in standing.paused
    ]
    found += _providers(request)
    found += _backed_off(private=private)
    found += [
        {
            "state": "quarantined",
            "text": f"{row.cursor.session.name}: message {row.seq} failed alone {row.failures} times",
            "url": links.change("distillation", "quarantine", row.pk),
            "at": row.created_at,
        }
        for row in overview.held()
    ]
    if request.user.has_perm("sessions_exec.view_webhook"):
        found += _webhooks()
    # Kept for all who look: each gets what they may read of it.
    of_memories = cache.get_or_set("console:needs", _needs_of_memories, NEEDS_KEPT) or []
    return [*found, *({**item, "text": item["text"] if private else item["hidden"]} for item in of_memories)][:5]


def _webhooks() -> list[dict[str, Any]]:
    found = [
        ("paused", webhook, webhook.paused_reason[:160], webhook.paused_at) for webhook in webhooks.paused_by_failing()
    ]
    found += [
        ("failing", webhook, f"its last {webhook.failures} calls failed", webhook.failing_since)
        for webhook in webhooks.failing(calls.IN_A_ROW)
    ]
    return [
        {
            "state": state,
            "text": f"Webhook {webhook} of {webhook.space.slug}: {line}",
            "url": links.change("sessions_exec", "webhook", webhook.pk),
            "at": at,
        }
        for state, webhook, line, at in found
    ]


def _providers(request: HttpRequest) -> list[dict[str, Any]]:
    """Those that are called again and again, and answer no more."""
    if not request.user.has_perm("agentmemory.view_provider"):
        return []
    private = permissions.reads_private(request)
    return [
        {
            "state": "failing",
            "text": f"Provider {provider.name}: {asked.line(private=private)[:200]}",
            "url": links.change("agentmemory", "provider", provider.pk),
            "at": asked.failed_at,
        }
        for provider, asked in cache.get_or_set("console:failing", calls.failing, NEEDS_KEPT) or []
    ]


def _backed_off(*, private: bool) -> list[dict[str, Any]]:
    """Sessions that have failed again and again: one line for all, with an error that may quote them."""
    rows = overview.backed_off(calls.IN_A_ROW)
    if not rows:
        return []
    worst, count = rows[0], f"{overview.MOST}+" if len(rows) > overview.MOST else f"{len(rows)}"
    who = worst.session.name if len(rows) == 1 else f"{count} sessions"
    last = ": " + worst.last_error.partition("\n")[0][:160] if private else ""
    many = f"failed {worst.failures} times in a row" if len(rows) == 1 else f"failed {calls.IN_A_ROW} times or more"
    listed = links.listing("distillation", "cursor", "waiting=backing_off")
    return [
        {
            "state": "backing off",
            "text": f"{who} {many}{last}",
            "url": links.a_cursor(worst.pk) if len(rows) == 1 else listed,
            "at": min(row.next_attempt_at for row in rows if row.next_attempt_at),
        }
    ]


@receiver(post_save, sender=Activity)
@receiver(post_save, sender=Consolidation)
def _ask_anew(sender: object, *, instance: Activity | Consolidation, **_: Any) -> None:
    """What an operator has just settled needs nobody any more."""
    if not (isinstance(instance, Activity) and instance.act == "look"):
        cache.delete_many(["console:needs", "console:failing"])


def _needs_of_memories() -> list[dict[str, Any]]:
    """What is held for a person, what contradicts, quotations that were not found: looked for among the newest.

    In full, and as one is told who may not read what is private.
    """
    found = [
        {
            "state": "held",
            **_told(memory, memory.withdrawn_reason, hidden="it waits for a person's word"),
            "url": links.memory(memory.pk),
            "at": memory.updated_at,
        }
        for memory in inspection.held()
    ]
    found += [
        {
            "state": "distilled",
            **_told(memory, "the curated and the distilled memory disagree"),
            "url": links.memory(memory.pk) + "#other",
            "at": memory.since,
        }
        for memory in inspection.disagreements()
    ]
    found += [
        {
            "state": "not found in its message",
            **_told(source.memory, f"a quotation from {source.session_name}"),
            "url": links.memory(source.memory_id) + "#sources",
            "at": source.created_at,
        }
        for source in inspection.unverified()
    ]
    return found


def _told(memory: Memory, line: str, *, hidden: str = "") -> dict[str, str]:
    """What is said of a memory, and what to one who may not read it: `hidden` where the line itself may tell."""
    instead = hidden or line
    names = ((True, line), (False, instead))
    full, less = (f"{naming.memory(memory, private=private)}: {said}" for private, said in names)
    return {"text": full, "hidden": less}


def latest(request: HttpRequest) -> list[dict[str, Any]]:
    """The newest versions of memories and the newest passes, together, five at most."""
    private = permissions.reads_private(request)
    found: list[dict[str, Any]] = [_passed(row) for row in overview.latest()]
    if request.user.has_perm("agentmemory.view_memory"):
        found += [_wrote(event) for event in inspection.latest() if private or event.owner_id is None]
    return sorted(found, key=lambda entry: entry["at"], reverse=True)[:5]


def _passed(row: DistillationPass) -> dict[str, Any]:
    count = len(row.written)
    memories = "1 memory" if count == 1 else f"{count} memories"
    written = memories if row.outcome == DistillationPass.Outcome.APPLIED else row.failure
    return {
        "state": row.outcome,
        "text": f"pass {row.pk} over {row.session_name} of {row.agent.handle}" + (f": {written}" if written else ""),
        "url": links.a_pass(row.pk),
        "at": row.started_at,
    }


def _wrote(event: Any) -> dict[str, Any]:
    author = (event.pgh_context or {}).get("author") or "somebody"
    return {
        "state": event.origin,
        "text": f"{event.key}: version {event.version} by {author}",
        "url": reverse("admin:agentmemory_memory_change", args=[event.pgh_obj_id]),
        "at": event.pgh_created_at,
    }
