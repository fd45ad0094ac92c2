"""What an operator's words may mean: rows by their names, ids and words, a few of each kind and from indexes alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from agentmemory.models import Agent, Memory, Message, MessageIndex, Session, Space
from agentmemory.search import lexical, marking
from agentmemory.services import limits, naming, patience
from agentmemory.services.patience import TookTooLong

SHOWN = 6
"""Rows of one kind: who finds so many goes on in its list."""

# In seconds.
PATIENCE = 1.5
A_MOMENT = 0.05
LENGTH = 200
NUMBER = 18

IN_CONTEXT = "in its context"
BEFORE_IT = "in what was said before it"


@dataclass(frozen=True, kw_only=True)
class Found:
    """A row that was meant. `private`: its `line` says what only those may read who may read what is private.

    `marks` matches the words in the line; `why` says where they are, when they are not to be seen in it.
    """

    row: Any
    title: str
    line: str = ""
    states: Sequence[str] = ()
    private: bool = False
    marks: re.Pattern[str] | None = None
    why: str = ""


Finder = Callable[[str, bool], Iterable[Found]]


def text(words: str) -> str:
    """The words, as far as they are looked at. Raises `Invalid` for what cannot be stored."""
    return limits.text(words.strip()[:LENGTH], field="s", maximum=LENGTH, blank=True)


def within_patience(find: Finder, words: str, *, readable: bool) -> list[Found] | None:
    """The first rows that a finder has; None where it took too long."""
    try:
        with patience.at_most(PATIENCE):
            return list(find(words, readable))[:SHOWN]
    except TookTooLong:
        return None


def spaces_and_agents(words: str, readable: bool) -> list[Found]:
    """By the beginning of a handle or slug, or by what a name holds."""
    agents = Agent.objects.filter(Q(handle__startswith=words) | Q(name__icontains=words)).select_related("space")
    spaces = Space.objects.filter(Q(slug__startswith=words) | Q(name__icontains=words))
    return [
        *(Found(row=row, title=row.handle, line=f"agent · {row.space.slug}") for row in agents.order_by("pk")[:SHOWN]),
        *(Found(row=row, title=row.slug, line="space") for row in spaces.order_by("pk")[:SHOWN]),
    ]


def memories(words: str, readable: bool) -> list[Found]:
    """By id; by key, whole or from its beginning; by words of content, key and tags. Those no longer in use, too.

    Those that match by their context alone come last. A search that answers is a way of reading: private memories are
    found by those alone who may read them, by key too.
    """
    rows = Memory.objects.select_related("owner", "space").defer("search").order_by("-updated_at", "-id")
    if (pk := _uuid(words)) is not None:
        return [_memory(row, None, readable) for row in rows.filter(pk=pk)]
    within = rows if readable else rows.filter(owner__isnull=True)
    found = {row.pk: row for row in within.filter(key=words)[:SHOWN]}
    if len(found) < SHOWN:
        found |= {row.pk: row for row in within.filter(key__startswith=words).order_by("pk")[:SHOWN]}
    hidden: list[Memory] = []
    if len(found) < SHOWN:
        said, hidden = _said_and_hidden(within, words)
        found = {row.pk: row for row in said} | found
        found = {row.pk: row for row in sorted(found.values(), key=lambda row: row.key != words)}
    marks = marking.pattern(words)
    shown = [_memory(row, marks, readable) for row in found.values()]
    return [*shown, *(_memory(row, marks, readable, why=IN_CONTEXT) for row in hidden if row.pk not in found)]


def _said_and_hidden(rows: QuerySet[Any], words: str) -> tuple[list[Any], list[Any]]:
    """Rows that hold the words in view; and, where these are few, such as hold them in their context alone.

    Where a word stands is not in the index: of one that very many rows hold, the newest are as good as any.
    """
    try:
        with patience.at_most(A_MOMENT):
            said = list(lexical.holding(rows, words, in_view=True)[:SHOWN])
    except TookTooLong:
        return list(lexical.holding(rows, words)[:SHOWN]), []
    if len(said) == SHOWN:
        return said, []
    known = {row.pk for row in said}
    return said, [row for row in lexical.holding(rows, words)[:SHOWN] if row.pk not in known]


def sessions(words: str, readable: bool) -> list[Found]:
    """By the beginning of the name that clients call it by; for those who may read what is private, by newer titles."""
    called = Session.objects.called(words) if readable else Session.objects.filter(name__startswith=words)
    return [
        Found(
            row=row,
            title=row.name,
            line=" · ".join(filter(None, (naming.title(row, private=readable), row.agent.handle, row.space.slug))),
        )
        for row in called.select_related("agent", "space").order_by("-pk")[:SHOWN]
    ]


def messages(words: str, readable: bool) -> list[Found]:
    """By uid; and, for those who may read what is private, by words of what was said."""
    rows = Message.objects.select_related("session__agent", "space").defer("content").order_by("-pk")
    found = {row.pk: "" for row in rows.filter(uid=words)[:SHOWN]}
    if readable and len(found) < SHOWN:
        said, hidden = _said_and_hidden(MessageIndex.objects.order_by("-pk").only("pk"), words)
        found = {**{row.pk: BEFORE_IT for row in hidden}, **{row.pk: "" for row in said}, **found}
    marks = marking.pattern(words)
    shown = sorted(rows.filter(pk__in=found), key=lambda row: found[row.pk] != "")
    return [_message(row, marks, readable, why=found[row.pk]) for row in shown]


def number(words: str) -> int | None:
    """A row's number, where the words are one."""
    digits = words.removeprefix("#")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= NUMBER else None


def _memory(row: Memory, marks: re.Pattern[str] | None, readable: bool, *, why: str = "") -> Found:
    may = naming.readable(row, private=readable)
    whose = f"{row.owner.handle if row.owner else 'shared'} · {row.space.slug}"
    said = marking.excerpt(row.content, marks) if may else "private"
    return Found(
        row=row,
        title=naming.memory(row, private=readable),
        line=f"{said} · {whose}",
        states=[row.origin, *_gone(row)],
        private=may and row.owner_id is not None,
        marks=marks,
        why=why or _by_its_tags(row, marks),
    )


def _by_its_tags(row: Memory, marks: re.Pattern[str] | None) -> str:
    """Where neither the key nor the content has any of the words, and a tag does."""
    if marks is None or marks.search(row.key) or marks.search(row.content):
        return ""
    return "in its tags" if any(map(marks.search, row.tags)) else ""


def _gone(row: Memory) -> list[str]:
    marks = {"deleted": row.deleted_at, "merged": row.merged_into_id, "withdrawn": row.withdrawn_at}
    return [state for state, is_so in marks.items() if is_so][:1]


def _message(row: Message, marks: re.Pattern[str] | None, readable: bool, *, why: str) -> Found:
    where = f"{row.session.agent.handle} · {row.space.slug}"
    line = f"{marking.excerpt(row.text, marks)} · {where}" if readable else where
    states = ["taken back"] if row.retracted_at else []
    return Found(
        row=row,
        title=f"{row.session.name}, message {row.seq}",
        line=line,
        states=states,
        private=readable,
        marks=marks,
        why=why,
    )


def _uuid(words: str) -> UUID | None:
    try:
        return UUID(words) if len(words.replace("-", "")) == 32 else None
    except ValueError:
        return None
