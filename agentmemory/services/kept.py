"""Where this app keeps words of people and agents, for the search for everything."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User

from agentmemory.models import (
    Activity,
    Agent,
    Certificate,
    Consolidation,
    LoginTries,
    Memory,
    MemoryEvent,
    MemorySource,
    Message,
    MessageEdge,
    Provider,
    Session,
    Space,
    StoredAnswer,
    Token,
)
from agentmemory.services.finding import Looked, Place

CHANGED = "It is changed on its page."
WITH_ITS_SESSION = "It goes with its session."
_SAID = ("key", "content", "context", "tags")


def of_agent(row: Any) -> str:
    return f"{row.agent.handle} · {row.space.slug}"


def of_session(row: Any) -> str:
    return f"{row.session.agent.handle} · {row.session.space.slug}"


def of_space(row: Any) -> str:
    return row.space.slug if row.space else ""


def in_session(row: Any) -> tuple[type[Session], Any]:
    """The page of a row that is seen in its session alone."""
    return Session, row.session_id


def _owned(row: Memory) -> str:
    return f"{row.owner.handle if row.owner else 'shared'} · {row.space.slug}"


PLACES = [
    Place(
        kind="memory",
        looked=(
            Looked(model=Memory, columns=(*_SAID, "withdrawn_reason")),
            Looked(
                model=MemoryEvent,
                columns=(*_SAID, "withdrawn_reason", "pgh_context"),
                row="pgh_obj",
                why="in its history: an earlier version, or why it was changed",
            ),
            Looked(model=MemorySource, columns=("quote",), row="memory", why="in words that are quoted as its source"),
        ),
        where=lambda row: row.key,
        whose=_owned,
        related=("owner", "space"),
        order="-updated_at",
    ),
    Place(
        kind="message",
        looked=(
            Looked(
                model=Message,
                columns=(
                    "text",
                    "content",
                    "uid",
                    "subtype",
                    "parent_tool_use_id",
                    "tool_outcomes",
                    "superseded_by",
                    "retraction_reason",
                ),
            ),
        ),
        where=lambda row: f"{row.session.name}, message {row.seq}",
        whose=of_session,
        related=("session__agent", "session__space"),
    ),
    Place(
        kind="session",
        looked=(Looked(model=Session, columns=("name", "title", "metadata")),),
        where=lambda row: row.name,
        whose=of_agent,
        related=("agent", "space"),
    ),
    Place(
        kind="source",
        looked=(Looked(model=MemorySource, columns=("session_name", "uid")),),
        where=lambda row: f"{row.memory.key}, from {row.session_name}",
        whose=lambda row: _owned(row.memory),
        page=lambda row: (Memory, row.memory_id),
        related=("memory__owner", "memory__space"),
        stays="It names its message as long as its memory is there: it goes with that.",
    ),
    Place(
        kind="link between messages",
        looked=(Looked(model=MessageEdge, columns=("reason", "target_uid", "source_uid")),),
        where=lambda row: f"{row.session.name}, message {row.target_uid}",
        whose=of_session,
        page=in_session,
        related=("session__agent", "session__space"),
        stays="It goes with its message, or with its session.",
    ),
    Place(
        kind="merge or withdrawal",
        looked=(Looked(model=Consolidation, columns=("why", "reason", "tags_added", "undone_reason")),),
        where=lambda row: f"{row.get_kind_display()} of {row.memory.key}",
        whose=of_space,
        related=("memory", "space"),
        stays="It goes with its memories.",
    ),
    Place(
        kind="agent",
        looked=(Looked(model=Agent, columns=("handle", "name", "instructions", "model")),),
        where=lambda row: row.handle,
        whose=of_space,
        related=("space",),
        stays=CHANGED,
    ),
    Place(kind="space", looked=(Looked(model=Space, columns=("slug", "name", "default_model")),), stays=CHANGED),
    Place(
        kind="token",
        looked=(Looked(model=Token, columns=("name",)),),
        where=lambda row: row.prefix,
        whose=of_space,
        related=("space",),
        stays="It keeps its name. It goes with its agent.",
    ),
    Place(
        kind="provider",
        looked=(
            Looked(
                model=Provider,
                columns=(
                    "name",
                    "address",
                    "key_variable",
                    "default_model",
                    "served_models",
                    "paused_reason",
                    "stopped_reason",
                ),
            ),
        ),
        where=lambda row: row.name,
        stays="It is changed on its page; why it pauses goes when it goes on.",
    ),
    Place(
        kind="operator",
        looked=(Looked(model=User, columns=("username", "first_name", "last_name", "email")),),
        where=lambda row: row.get_username(),
        stays=CHANGED,
    ),
    Place(kind="role", looked=(Looked(model=Group, columns=("name",)),), stays=CHANGED),
    Place(
        kind="act on record",
        looked=(Looked(model=Activity, columns=("who", "act", "target_id", "target", "reason", "detail")),),
        where=lambda row: f"{row.act} {row.target}",
        whose=of_space,
        related=("space",),
        stays="The record of acts stays. A purge takes names and reasons out of it, of the rows that it takes.",
    ),
    Place(
        kind="purge",
        looked=(Looked(model=Certificate, columns=("who", "reason")),),
        whose=of_space,
        related=("space",),
        stays="A certificate is never changed.",
    ),
    Place(
        kind="change on record",
        looked=(Looked(model=LogEntry, columns=("object_repr", "change_message")),),
        where=lambda row: row.object_repr,
        stays="It stays: what a row was called when an operator saved it. It goes with its agent.",
    ),
    Place(
        kind="answer kept",
        looked=(Looked(model=StoredAnswer, columns=("body", "key")),),
        where=lambda row: f"to a call at {row.created_at:%Y-%m-%d %H:%M} UTC",
        whose=lambda row: row.token.space.slug,
        page=lambda row: (Token, row.token_id),
        related=("token__space",),
        stays="It goes with every purge in its space, and by itself after a day.",
    ),
    Place(
        kind="sign-in that failed",
        looked=(Looked(model=LoginTries, columns=("subject",)),),
        where=lambda row: row.get_kind_display(),
        stays="It goes by itself.",
    ),
]
