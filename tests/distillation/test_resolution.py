"""Which provider and model distil an agent's sessions, and how long one call may take (D17, A3)."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from agentmemory.models import Agent, Provider
from agentmemory.services import providers
from distillation.services import resolution
from tests.factories import AgentFactory, ProviderFactory

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def others(settings: Settings) -> None:
    """Beside the built-in provider one that serves known models, and one that agents name."""
    settings.AGENTMEMORY_PROVIDER_KEYS = {"ANTHROPIC_API_KEY": "sk-of-tests"}
    ProviderFactory.create(name="serving", default_model="served", served_models=["served-too"])
    ProviderFactory.create(name="named", default_model="of-named")


def resolved(*, model: str = "", provider: str = "", default: str = "") -> tuple[str, str, str]:
    """By whom, with which model and why an agent is distilled that names these, in a space with a default."""
    own = Provider.objects.get(name=provider) if provider else None
    agent: Agent = AgentFactory.create(model=model, provider=own, space__default_model=default)
    found = resolution.resolve(agent)
    return found.provider.name, found.model, found.reason


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"model": "any", "provider": "named", "default": "served"}, ("named", "any", "agent's model")),
        ({"model": "served", "provider": "named"}, ("named", "served", "agent's model")),
        ({"model": "served-too", "default": "other"}, ("serving", "served-too", "agent's model")),
        ({"model": "unheard-of"}, ("anthropic", "unheard-of", "agent's model")),
        ({"default": "served"}, ("serving", "served", "space default")),
        ({"default": "served-too", "provider": "serving"}, ("serving", "served-too", "space default")),
        ({"default": "served", "provider": "named"}, ("named", "of-named", "agent's provider")),
        ({"default": "unheard-of"}, ("anthropic", "unheard-of", "space default")),
        ({"default": "unheard-of", "provider": "named"}, ("named", "of-named", "agent's provider")),
        ({"provider": "named"}, ("named", "of-named", "agent's provider")),
        ({}, ("anthropic", providers.BUILT_IN_MODEL, "built-in default")),
    ],
    ids=lambda value: "-".join(value.values()) if isinstance(value, dict) else "",
)
def test_d17_the_agents_model_comes_before_the_spaces_and_the_providers(
    given: dict[str, str], found: tuple[str, str, str]
) -> None:
    assert resolved(**given) == found


def test_d17_what_is_switched_off_serves_no_model() -> None:
    Provider.objects.filter(name="serving").update(enabled=False)
    assert resolved(model="served") == ("anthropic", "served", "agent's model")


def test_d17_without_a_key_the_offline_extractor_is_built_in(settings: Settings) -> None:
    settings.AGENTMEMORY_PROVIDER_KEYS = {}
    assert resolved() == ("offline", "offline", "built-in default")


@pytest.mark.parametrize(("own", "seconds"), [(None, 120), (30, 30), (100_000, 270)])
def test_a3_no_call_may_outlast_its_lease(settings: Settings, own: int | None, seconds: float) -> None:
    settings.AGENTMEMORY_CALL_TIMEOUT, settings.AGENTMEMORY_CURSOR_LEASE = 120, 300
    endpoint = resolution.endpoint(ProviderFactory.create(timeout_seconds=own))
    assert endpoint is not None
    assert endpoint.timeout_seconds == seconds
