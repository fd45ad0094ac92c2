"""Purge: what an operator wants gone for good, over every table, with a certificate that holds none of it (M5, E).

A preview is the purge itself, taken back at its end: it cannot say anything else than what would happen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from agentmemory import authorship, signals
from agentmemory.authorship import Author
from agentmemory.errors import Invalid, NotAllowed, NotFound
from agentmemory.models import Agent, Certificate, Memory, MemoryEvent, Message, Session, Space, Token
from agentmemory.services import activity, erasing
from agentmemory.services.erasing import Counts


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What is to be erased: memories, sessions, single messages or inputs, all that an agent has. By ids alone."""

    memory_ids: Collection[UUID] = ()
    session_ids: Collection[int] = ()
    message_ids: Collection[int] = ()
    pass_ids: Collection[int] = ()
    input_ids: Collection[int] = ()
    agent_ids: Collection[int] = ()

    def as_json(self) -> dict[str, Any]:
        """What the certificate keeps of it."""
        named = {
            "memories": sorted(str(pk) for pk in self.memory_ids),
            "sessions": sorted(self.session_ids),
            "messages": sorted(self.message_ids),
            "passes": sorted(self.pass_ids),
            "inputs": sorted(self.input_ids),
            "agents": sorted(self.agent_ids),
        }
        return {name: ids for name, ids in named.items() if ids}


@dataclass(frozen=True, kw_only=True)
class Preview:
    """How many rows of each table a purge would delete or empty; and which, where one may go with another."""

    counts: dict[str, int] = field(default_factory=dict)
    rows: Mapping[str, Collection[Any]] = field(default_factory=dict)


class _TakenBack(Exception):
    pass


def preview(*, scope: Scope) -> Preview:
    """What a purge would do. It is done, counted and taken back."""
    counts = Counts()
    try:
        with transaction.atomic():
            _erase(scope, counts, Author(kind="operator", name="preview"))
            raise _TakenBack
    except _TakenBack:
        return Preview(counts=_told(counts), rows=counts.rows)


@transaction.atomic
def purge(*, scope: Scope, author: Author, reason: str) -> Certificate:
    """Erase for good, all or nothing, and certify it. Nobody can undo it.

    An agent stays, without anything that it had. Raises `NotAllowed` for all but operators, `Invalid` without a reason
    or a scope, `NotFound` for what is not there.
    """
    _check(author, reason)
    if not scope.as_json():
        raise Invalid("Nothing was named that could be erased.")
    counts = Counts()
    space = _erase(scope, counts, author)
    return _certified(scope.as_json(), counts, author=author, reason=reason, space=space)


@transaction.atomic
def delete_agent(
    *, agent_id: int, author: Author, reason: str, heir: Agent | None = None, erase: bool = False
) -> Certificate:
    """Delete an agent for good. What it has goes to `heir`, another agent of its space, or is erased with it (T4).

    One of the two must be chosen while it has anything: nothing private is lost or becomes shared by a deletion. Raises
    `NotAllowed`, `Invalid`, `NotFound`.
    """
    _check(author, reason)
    agent = Agent.objects.select_for_update(of=("self",)).select_related("space").filter(pk=agent_id).first()
    if agent is None:
        raise NotFound("There is no such agent.")
    if heir is None and not erase and _has_anything(agent):
        raise Invalid("The agent has memories or sessions: say to whom they go, or that they are to be erased.")
    counts = Counts()
    with authorship.acting(author, reason=erasing.REASON), authorship.purging():
        if heir is None:
            _erase_all_of(agent, counts)
        else:
            _give_all(agent, heir)
        signals.agent_leaving.send(Agent, agent=agent, heir=heir, counts=counts)
        erasing.answers([agent.space_id], counts)
        _delete_row(agent, counts)
    scope = {"agents": [agent_id], **({"heir": heir.pk} if heir else {})}
    return _certified(scope, counts, author=author, reason=reason, space=agent.space)


def _check(author: Author, reason: str) -> None:
    if author.kind != "operator":
        raise NotAllowed("Only an operator may erase for good.")
    if not reason.strip():
        raise Invalid("It needs a reason.", field="reason")


def _erase(scope: Scope, counts: Counts, author: Author) -> Space | None:
    """Erase all of it. The space that it was in, where that is one."""
    spaces: set[int] = set()
    # Before anything goes: what goes with its session was named all the same.
    named = _by_session(scope.message_ids)
    with authorship.acting(author, reason=erasing.REASON), authorship.purging():
        for agent in _found(Agent, scope.agent_ids):
            spaces.add(agent.space_id)
            _erase_all_of(agent, counts)
        for session in _found(Session, scope.session_ids):
            spaces.add(session.space_id)
            erasing.session(session, counts)
        for session in Session.objects.filter(pk__in=named).order_by("pk"):
            spaces.add(session.space_id)
            erasing.messages(session, named[session.pk], counts)
        spaces |= set(Memory.objects.filter(pk__in=scope.memory_ids).values_list("space", flat=True))
        erasing.memories(list(scope.memory_ids), counts)
        signals.passes_erased.send(Certificate, pass_ids=scope.pass_ids, counts=counts)
        told: Any = signals.inputs_erased.send(Certificate, input_ids=scope.input_ids, counts=counts)
        spaces |= {pk for _, found in told for pk in found or ()}
        erasing.answers(spaces, counts)
    return Space.objects.get(pk=spaces.pop()) if len(spaces) == 1 else None


def _found(model: Any, ids: Collection[int]) -> list[Any]:
    rows = list(model.objects.filter(pk__in=ids).order_by("pk"))
    if len(rows) != len(set(ids)):
        raise NotFound(f"There is no such {model._meta.verbose_name}.")
    return rows


def _by_session(message_ids: Collection[int]) -> dict[int, list[str]]:
    rows = list(Message.objects.filter(pk__in=message_ids).order_by("session", "seq").values_list("session", "uid"))
    if len(rows) != len(set(message_ids)):
        raise NotFound("There is no such message.")
    found: dict[int, list[str]] = {}
    for session_id, uid in rows:
        found.setdefault(session_id, []).append(uid)
    return found


def _has_anything(agent: Agent) -> bool:
    return Memory.objects.filter(owner=agent).exists() or Session.objects.filter(agent=agent).exists()


def _erase_all_of(agent: Agent, counts: Counts) -> None:
    for session in Session.objects.filter(agent=agent).order_by("pk"):
        erasing.session(session, counts)
    erasing.memories(list(Memory.objects.filter(owner=agent).values_list("pk", flat=True)), counts)
    # What it said privately before it was shared, or given to another.
    erasing.history(MemoryEvent.objects.filter(owner=agent), counts)


def _give_all(agent: Agent, heir: Agent) -> None:
    """Hand memories and sessions over as they are. Raises `Invalid` where the heir has one of the same name."""
    if heir.space_id != agent.space_id or heir.pk == agent.pk or heir.archived_at is not None:
        raise Invalid("The heir must be another agent of the same space.", field="heir")
    kept = Memory.objects.kept()
    for origin in Memory.Origin.values:
        keys = kept.filter(owner=heir, origin=origin).values("key")
        if taken := kept.filter(owner=agent, origin=origin, key__in=keys).count():
            raise Invalid(f"{heir} has {taken} {origin} memories of the same keys: settle those first.", field="heir")
    names = Session.objects.filter(agent=heir).values("name")
    if taken := Session.objects.filter(agent=agent, name__in=names).count():
        raise Invalid(f"{heir} has {taken} sessions of the same names: settle those first.", field="heir")
    Memory.objects.filter(owner=agent).update(owner=heir, version=F("version") + 1, updated_at=timezone.now())
    # The heir sees all of what it has now.
    MemoryEvent.objects.filter(owner=agent).update(owner=heir)
    Session.objects.filter(agent=agent).update(agent=heir)


def _delete_row(agent: Agent, counts: Counts) -> None:
    pk = agent.pk
    erasing.delete(Token.objects.filter(agent=agent), counts)
    erasing.delete(Agent.objects.filter(pk=pk), counts)
    kind = ContentType.objects.get_for_model(Agent)
    erasing.delete(LogEntry.objects.filter(content_type=kind, object_id=str(pk)), counts)
    counts["agentmemory_activity"] += activity.forget(Agent, [pk])


def _told(counts: Counts) -> dict[str, int]:
    return {table: count for table, count in sorted(counts.items()) if count}


def _certified(
    scope: dict[str, Any], counts: Counts, *, author: Author, reason: str, space: Space | None
) -> Certificate:
    certificate = Certificate.objects.create(
        who=str(author), reason=reason.strip()[:500], space=space, scope=scope, counts=_told(counts)
    )
    activity.record("purge", who=str(author), target=certificate, reason=reason, space=space)
    return certificate
