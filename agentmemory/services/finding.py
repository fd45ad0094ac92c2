"""Everything that is stored about something, for an operator who is asked for it: in every place, and bounded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction
from django.db.models import CharField, F, Func, Q, QuerySet, TextField, Value
from django.db.models.functions import Cast

from agentmemory.errors import Invalid
from agentmemory.models import Memory, MemoryEvent, MemorySource, Message, Session
from agentmemory.services import limits

MOST = 200
"""Rows that are shown of one kind: who has found so many looks for more words."""

PATIENCE_SECONDS = 30
"""Every row is looked at, whatever words it is indexed by: that takes its time, and no more than this for each kind."""

SHORTEST = 3


@dataclass(frozen=True, kw_only=True)
class Found:
    """A row that holds the words. `kind` is `memory`, `message`, `session`, or what another app calls its own."""

    kind: str
    pk: Any
    where: str
    excerpt: str
    whose: str = ""


@dataclass(frozen=True, kw_only=True)
class Everything:
    """What was found, by kind in a fixed order; `cut` names the kinds of which there is more."""

    rows: Sequence[Found]
    cut: tuple[str, ...] = ()


Finder = Callable[[str], list[Found]]

# Apps further left add what they keep: they know this app, and it knows none of them.
finders: list[Finder] = []


def everything(text: str) -> Everything:
    """Rows of every kind that hold `text`, in whatever case. Raises `Invalid` for less than three characters."""
    text = limits.text(text, field="q", maximum=1_000)
    if len(text) < SHORTEST:
        raise Invalid(f"At least {SHORTEST} characters.", field="q")
    rows: list[Found] = []
    cut: list[str] = []
    for find in (_memories, _messages, _sessions, *finders):
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT set_config('statement_timeout', %s, true)", [f"{PATIENCE_SECONDS}s"])
            found = find(text)
        rows += found[:MOST]
        if len(found) > MOST:
            cut.append(found[0].kind)
    return Everything(rows=rows, cut=tuple(cut))


def holding(text: str, *fields: str) -> Q:
    """That one of these columns, as text, holds the words."""
    return Q(*((f"{field}__icontains", text) for field in fields), _connector=Q.OR)


def excerpt(text: str, words: str, *, around: int = 80) -> str:
    """The place where the words stand."""
    at = max(0, text.lower().find(words.lower()) - around)
    return ("… " if at else "") + " ".join(text[at : at + len(words) + 2 * around].split())


def as_text(column: str) -> Cast:
    """A column of JSON as it is written."""
    return Cast(column, TextField())


def _memories(text: str) -> list[Found]:
    """Memories that say it, said it in any version, quote it, or were written or withdrawn for a reason that has it."""
    tags = Func(F("tags"), Value("\n"), function="array_to_string", output_field=CharField())
    said = ("key", "content", "context", "tagged")
    then: QuerySet[Any] = MemoryEvent.objects.annotate(tagged=tags, about=as_text("pgh_context"))
    ids = set(then.filter(holding(text, *said, "about")).values_list("pgh_obj_id", flat=True).distinct()[: MOST + 1])
    now = Memory.objects.annotate(tagged=tags)
    ids |= set(now.filter(holding(text, *said, "withdrawn_reason")).values_list("pk", flat=True)[: MOST + 1])
    ids |= set(MemorySource.objects.filter(quote__icontains=text).values_list("memory", flat=True)[: MOST + 1])
    rows = Memory.objects.filter(pk__in=ids).select_related("owner", "space").defer("search").order_by("-updated_at")
    return [
        Found(
            kind="memory",
            pk=memory.pk,
            where=memory.key,
            excerpt=excerpt(memory.content, text),
            whose=f"{memory.owner.handle if memory.owner else 'shared'} · {memory.space.slug}",
        )
        for memory in rows[: MOST + 1]
    ]


def _messages(text: str) -> list[Found]:
    """Messages whose visible words or whole content hold it; in JSON some characters are written otherwise."""
    rows = Message.objects.annotate(raw=as_text("content")).filter(holding(text, "text", "raw", "uid"))
    found: list[Any] = list(rows.select_related("session__agent", "session__space").order_by("-pk")[: MOST + 1])
    return [
        Found(
            kind="message",
            pk=message.pk,
            where=f"{message.session.name}, message {message.seq}",
            excerpt=excerpt(message.text or message.raw, text),
            whose=f"{message.session.agent.handle} · {message.session.space.slug}",
        )
        for message in found
    ]


def _sessions(text: str) -> list[Found]:
    """Sessions whose name, title or metadata hold it."""
    rows = Session.objects.annotate(about=as_text("metadata")).filter(holding(text, "name", "title", "about"))
    return [
        Found(
            kind="session",
            pk=session.pk,
            where=session.name,
            excerpt=session.title,
            whose=f"{session.agent.handle} · {session.space.slug}",
        )
        for session in rows.select_related("agent", "space").order_by("-pk")[: MOST + 1]
    ]
