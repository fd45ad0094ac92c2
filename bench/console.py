"""How long the operators' pages take at any size, beside the time that their own queries take.

    python -m bench.console [--memories 100000] [--messages 1000000]

An installation of that size is made in a database of its own. Each page is then asked for as a browser would, several
times, with nothing cached but what the start page keeps for a day; printed are, as medians of this run, its queries,
their time, the page's time, and the ratio of the two. A page's time is that of its queries and the processor's time of
all else, so that other programs on the machine count less. Pages over 300 ms are marked.
"""

# ruff: noqa: T201 - what it prints is what it is for
from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench import console_rows, throwaway

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.test import Client

ROUNDS = 5
MOST_MS = 300.0
FIRST = "start, first of a day"


@dataclass(kw_only=True)
class Asked:
    """The queries of one page: how many, and how long they took altogether. It wraps each of them."""

    count: int = 0
    seconds: float = 0.0
    busy: float = 0.0

    def __call__(self, execute: Callable[..., Any], *given: Any) -> Any:
        begun, before = time.perf_counter(), time.thread_time()
        try:
            return execute(*given)
        finally:
            self.seconds += time.perf_counter() - begun
            self.busy += time.thread_time() - before
            self.count += 1


@contextlib.contextmanager
def signed_in() -> Iterator[Client]:
    from django.conf import settings
    from django.contrib.auth.models import User
    from django.test import Client

    settings.ALLOWED_HOSTS = ["testserver"]
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    yield client


def pages() -> Iterator[tuple[str, str]]:
    """What each page is called here, and where it is."""
    from django.urls import reverse

    from agentmemory.models import Agent, Memory, Message, Session
    from distillation.models import Cursor, DistillationPass

    yield FIRST, reverse("admin:index")
    yield "start", reverse("admin:index")
    memories = reverse("admin:agentmemory_memory_changelist")
    yield "memories", memories
    yield "memories, from the middle", f"{memories}?p={_middle(Memory.objects.all(), '-updated_at', '-id')}"
    for query in ("origin__exact=curated", "standing=withdrawn", "standing=deleted", "standing=merged", "agent=agent-3",
                  "tag=t7", "session=session-7", "use=used", "use=never", "age=1", "notice=unverified", "notice=pinned",
                  "notice=expiring", "q=wb", "q=wb+wc", "q=copy-777", "q=nowhere", "o=7"):  # fmt: skip
        yield f"memories, {query}", f"{memories}?{query}"
    yield "compare", reverse("admin:agentmemory_memory_compare")
    messages = reverse("admin:agentmemory_message_changelist")
    newest = Message.objects.latest("pk")
    yield "messages", messages
    yield "messages, from the middle", f"{messages}?p={_middle(Message.objects.all(), '-id')}"
    for query in (f"q={newest.uid}", "session=session-7", "agent=agent-3", "type__exact=result"):
        yield f"messages, {query}", f"{messages}?{query}"
    passes = reverse("admin:distillation_distillationpass_changelist")
    yield "passes", passes
    for query in ("outcome__exact=failed", "failure=timeout", "agent=agent-3", "q=session-7", "o=7"):
        yield f"passes, {query}", f"{passes}?{query}"
    waiting = reverse("admin:distillation_cursor_changelist")
    for query in (
        "",
        "waiting=behind",
        "waiting=stuck",
        "waiting=due",
        "waiting=blocked",
        "waiting=idle",
        "waiting=running",
        "agent=agent-3",
        "q=session-7",
    ):
        yield f"waiting, {query}".rstrip(", "), f"{waiting}?{query}"
    sessions = reverse("admin:agentmemory_session_changelist")
    for query in ("", "agent=agent-3", "status=complete", "q=session-7"):
        yield f"sessions, {query}".rstrip(", "), f"{sessions}?{query}"
    activity = reverse("admin:agentmemory_activity_changelist")
    for query in ("", "kind=looks", "q=copy-777"):
        yield f"activity, {query}".rstrip(", "), f"{activity}?{query}"
    for name in ("sessions_exec_execution", "sessions_exec_input", "sessions_exec_recovery",
                 "agentmemory_consolidation", "distillation_quarantine", "agentmemory_space",
                 "agentmemory_agent", "agentmemory_token",
                 "agentmemory_provider", "sessions_exec_heartbeat", "agentmemory_certificate", "sessions_exec_tick",
                 "sessions_exec_webhook", "sessions_exec_delivery", "agentmemory_logintries"):  # fmt: skip
        yield name.partition("_")[2].removeprefix("exec_"), reverse(f"admin:{name}_changelist")
    for words in ("wb", "copy-777", "session-7", "nowhere"):
        yield f"search box, {words}", f"{reverse('admin:search')}?s={words}"
    yield "cost", reverse("admin:distillation_cost")
    yield "estimate", reverse("admin:distillation_estimate")
    yield "dry run of consolidation", reverse("admin:agentmemory_consolidation_dry_run")
    for row in (Memory.objects.filter(origin="distilled").first(), Session.objects.latest("pk"), Agent.objects.first(),
                Cursor.objects.latest("pk"), DistillationPass.objects.latest("pk")):  # fmt: skip
        assert row is not None  # noqa: S101 - else the rows were not made
        yield (
            f"one {row._meta.verbose_name}",
            reverse(f"admin:{row._meta.label_lower.replace('.', '_')}_change", args=[row.pk]),
        )


def _middle(rows: QuerySet[Any], *order: str) -> str:
    """The place in the middle of a list."""
    from agentmemory.console import keyset

    at = rows.order_by(*order)[rows.count() // 2]
    name = order[0].lstrip("-")
    return keyset.page(rows.filter(**{f"{name}__lte": getattr(at, name)}), order, place="", size=1).next


def measure(client: Client, url: str, *, first: bool = False) -> tuple[int, float, float]:
    """How many queries a page asks, and in milliseconds their time and its own: medians, nothing recent cached."""
    from django.core.cache import cache
    from django.db import connection

    queries, whole, count = [], [], 0
    for _ in range(ROUNDS):
        if first:
            cache.clear()
        cache.delete_many(["console:needs", "console:failing"])
        asked = Asked()
        before = time.thread_time()
        with connection.execute_wrapper(asked):
            answer = client.get(url)
            size = len(answer.content)
        whole.append(1000 * (time.thread_time() - before - asked.busy + asked.seconds))
        queries.append(1000 * asked.seconds)
        count = asked.count
        assert answer.status_code == 200 and size, (url, answer.status_code)  # noqa: S101, PT018 - else nothing was measured
    return count, statistics.median(queries), statistics.median(whole)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memories", type=int, default=100_000)
    parser.add_argument("--messages", type=int, default=1_000_000)
    options = parser.parse_args()
    with throwaway.database():
        begun = time.monotonic()
        console_rows.fill(memories=options.memories, messages=options.messages)
        print(f"{options.memories:,} memories, {options.messages:,} messages, made in {time.monotonic() - begun:.0f} s")
        print(f"{'page':34}{'queries':>8}{'their ms':>10}{'page ms':>9}{'ratio':>7}", flush=True)
        slow = 0
        with signed_in() as client:
            for name, url in pages():
                count, queries, whole = measure(client, url, first=name == FIRST)
                slow += whole > MOST_MS
                mark = "  over" if whole > MOST_MS else ""
                print(f"{name:34}{count:>8}{queries:>10.1f}{whole:>9.1f}{whole / queries:>7.1f}{mark}", flush=True)
        print(f"{slow} pages over {MOST_MS:.0f} ms")


if __name__ == "__main__":
    main()
