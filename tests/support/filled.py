"""A small world with rows in every table, made by the ways that they come in real life."""

from __future__ import annotations

from django.db import transaction

from agentmemory.authorship import Author
from agentmemory.callers import Caller
from agentmemory.models import Certificate, Memory, Session
from agentmemory.services import (
    consolidation,
    consolidation_plans,
    curation,
    distilled,
    memories,
    merging,
    removals,
    sessions,
    spaces,
    tokens,
    transcripts,
    upkeep,
)
from agentmemory.services.transcripts import NewMessage
from distillation.models import Cursor, DistillationPass, Quarantine
from sessions_exec.models import ModelCall, Webhook
from sessions_exec.models.webhooks import TEST
from sessions_exec.services import announcing, executions, inbox


def fill() -> None:
    """Fill all tables but those that only running processes write to."""
    agent = spaces.ensure_agent(spaces.ensure("acme"), "ada")
    tokens.issue(space=agent.space, agent=agent)
    session, _ = sessions.adopt(agent=agent, name="s1", title="A talk")
    said = [NewMessage(uid=f"m{n}", type="user", content=f"Number {n}.") for n in range(5)]
    ends = NewMessage(uid="r", type="result", content="done", supersedes=["m4"])
    transcripts.append(session=session, messages=[*said, ends])
    removals.retract(session=session, uids=["m3", "later"])
    caller = Caller(space=agent.space, agent=agent)
    for n in range(3):
        memories.put(caller=caller, draft=memories.Draft(key=f"k{n}", content=f"Statement {n}.", tags=["a", "b"]))
    memories.delete(caller=caller, key="k2")
    memories.get(caller=caller, key="k0")
    upkeep.add_up_accesses()
    memories.get(caller=caller, key="k1")
    found, again = (distil(session, key) for key in ("d", "e"))
    merging.merge(memory_id=again.pk, into_id=found.pk, author=Author(kind="system", name="tests"), why="the same")
    Certificate.objects.get_or_create(who="operator:olga", reason="asked for")
    consolidation.run(plan=consolidation_plans.plan())
    curation.promote(memory_id=found.pk, author=Author(kind="operator", name="olga"), reason="right")
    cursor = Cursor.objects.get(session=session)
    place = {"space": agent.space, "agent": agent, "cursor": cursor}
    DistillationPass.objects.create(**place, session=session, session_name="s1", epoch=1, start=0, end=6)
    Quarantine.objects.create(**place, uid="m1", seq=2)
    Webhook.objects.create(space=agent.space, name="w", url="https://example.org", events=[TEST], salt="s")
    announcing.announce(TEST, space_id=agent.space.pk, data={})
    run_a_session(caller)


def distil(session: Session, key: str) -> Memory:
    source = distilled.Source(message=session.messages.get(uid="m0"), quote="0", verified=True)
    finding = distilled.Finding(key=key, content="Distilled.", tags=[], context="", sources=[source])
    with transaction.atomic():
        return distilled.write(session=session, finding=finding, pass_id=1).memory


def run_a_session(caller: Caller) -> None:
    assert caller.agent is not None
    session, _ = sessions.adopt(agent=caller.agent, name="s2")
    inbox.admit(session=session, uid="i1", prompt="Go on.", delivery="queue")
    executions.acquire(session=session, holder="runner", seconds=30)
    ModelCall.objects.create(
        space=session.space,
        agent=session.agent,
        session=session,
        epoch=1,
        purpose="answer",
        provider_name="p",
        model="m",
    )
