"""Rows for tests, with what they need around them and nothing of the services: what a service promises, it must do.

Write `MemoryFactory.create(…)` rather than `MemoryFactory(…)`: only the first has a type that is known.
"""

# factory-boy declares its types, but not those of its declarations.
# mypy: disallow-untyped-calls=False

from __future__ import annotations

from factory.declarations import LazyAttribute, SelfAttribute, Sequence, SubFactory
from factory.django import DjangoModelFactory

from agentmemory.models import Agent, Memory, Message, Provider, Session, Space


class SpaceFactory(DjangoModelFactory[Space]):
    class Meta:
        model = Space

    slug = Sequence(lambda n: f"space-{n}")


class ProviderFactory(DjangoModelFactory[Provider]):
    class Meta:
        model = Provider

    name = Sequence(lambda n: f"provider-{n}")
    kind = Provider.Kind.ANTHROPIC
    address = "http://127.0.0.1:9"
    key_variable = "ANTHROPIC_API_KEY"
    default_model = "model-of-tests"


class AgentFactory(DjangoModelFactory[Agent]):
    class Meta:
        model = Agent

    space = SubFactory(SpaceFactory)
    handle = Sequence(lambda n: f"agent-{n}")


class SessionFactory(DjangoModelFactory[Session]):
    """A session without messages. Give `agent`; its space follows."""

    class Meta:
        model = Session

    agent = SubFactory(AgentFactory)
    space = SelfAttribute("agent.space")
    name = Sequence(lambda n: f"session-{n}")


class MessageFactory(DjangoModelFactory[Message]):
    """One message, numbered by `seq` alone: the session's own numbers are not moved."""

    class Meta:
        model = Message

    session = SubFactory(SessionFactory)
    space = SelfAttribute("session.space")
    seq = Sequence(lambda n: n + 1)
    uid = LazyAttribute(lambda message: f"m{message.seq}")
    type = Message.Type.USER
    text = LazyAttribute(lambda message: f"Message number {message.seq}.")
    content = SelfAttribute("text")
    is_speech = True
    digest = LazyAttribute(lambda message: f"{message.seq:064x}")


class MemoryFactory(DjangoModelFactory[Memory]):
    """A curated memory, private to a new agent. `owner=None, space=…` makes a shared one."""

    class Meta:
        model = Memory

    owner = SubFactory(AgentFactory)
    space = SelfAttribute("owner.space")
    origin = Memory.Origin.CURATED
    key = Sequence(lambda n: f"key-{n}")
    content = Sequence(lambda n: f"Statement number {n}.")
    created_by = "agent:factory"
