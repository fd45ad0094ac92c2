"""Which provider and model distil an agent's sessions, and why (D17)."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings

from agentmemory.errors import Invalid
from agentmemory.models import Agent, Provider
from agentmemory.services import providers
from sessions_exec.llm.messages import Endpoint


@dataclass(frozen=True, kw_only=True)
class Resolution:
    """The provider and the model, and the rule that chose them."""

    provider: Provider
    model: str
    reason: str


def resolve(agent: Agent) -> Resolution:
    """By the agent's model, the space's default, the agent's provider, or the built-in default, in this order."""
    own, default = agent.provider, agent.space.default_model
    if agent.model:
        provider = own or providers.serving(agent.model) or providers.built_in()
        return Resolution(provider=provider, model=agent.model, reason="agent's model")
    if default:
        serving = providers.serving(default) or providers.built_in()
        if own is None or own == serving:
            return Resolution(provider=serving, model=default, reason="space default")
    if own is not None:
        return Resolution(provider=own, model=default_model(own), reason="agent's provider")
    built_in = providers.built_in()
    return Resolution(provider=built_in, model=default_model(built_in), reason="built-in default")


def unusable(resolution: Resolution) -> str:
    """Why the resolved provider cannot distil at all; empty if it can. Neither a failure nor a backoff."""
    if resolution.provider.kind == Provider.Kind.ACP:
        return f"provider {resolution.provider} cannot be used for extraction"
    return ""


def obstacle(resolution: Resolution) -> str:
    """What somebody has to set right before the provider can be asked; empty if nothing."""
    provider = resolution.provider
    if not provider.enabled:
        return f"provider {provider} is switched off"
    if provider.kind == Provider.Kind.ANTHROPIC and providers.key(provider) is None:
        return f"provider {provider} has no key: {provider.key_variable} is not set"
    return ""


def endpoint(provider: Provider) -> Endpoint | None:
    """Where and with which key a provider is called; nothing for one that is not reached over a network.

    Raises `Invalid` for an address that is not allowed.
    """
    if provider.kind != Provider.Kind.ANTHROPIC:
        return None
    key = providers.key(provider)
    if key is None:
        raise Invalid(f"{provider.key_variable} is not set.", field="key_variable")
    # Within the lease, with room to store the answer (A3).
    longest = settings.AGENTMEMORY_CURSOR_LEASE * 0.9
    timeout = min(provider.timeout_seconds or settings.AGENTMEMORY_CALL_TIMEOUT, longest)
    return Endpoint(address=providers.address(provider), key=key, timeout_seconds=timeout)


def default_model(provider: Provider) -> str:
    """The model of those who name none."""
    if provider.default_model:
        return provider.default_model
    return providers.BUILT_IN_MODEL if provider.kind == Provider.Kind.ANTHROPIC else provider.kind
