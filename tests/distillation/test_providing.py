"""What operators do with providers (D19, D24): paused by hand, resumed, tried out."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from pytest_django import Settings

from agentmemory.errors import Invalid
from agentmemory.models import Activity, Provider
from agentmemory.services import providers
from distillation.models import DistillationPass
from distillation.services import distilling, providing
from sessions_exec import faults
from tests.distillation.conftest import Tell, cursor_of
from tests.factories import ProviderFactory
from tests.support import model_server
from tests.support.model_server import ModelServer

pytestmark = pytest.mark.django_db
WHO = {"operator": "olga", "reason": "the bill is too high"}


@pytest.fixture
def provider(server: ModelServer) -> Provider:
    return providers.ensure("anthropic")


def test_d24_a_provider_that_an_operator_paused_is_not_called_until_somebody_resumes_it(
    server: ModelServer, provider: Provider, tell: Tell
) -> None:
    cursor = cursor_of(tell("A fact."))
    providing.pause(provider_id=provider.pk, **WHO)

    result = distilling.run_cursor(cursor_id=cursor.pk, force=True)

    assert (result.state, server.requests) == ("blocked", [])
    assert result.line == "provider anthropic paused by olga: the bill is too high"
    cursor.refresh_from_db()
    assert (cursor.failures, cursor.waits_for) == (0, f"blocked: {result.line}")

    providing.resume(provider_id=provider.pk, operator="ada", reason="there is a new budget")
    assert distilling.run_cursor(cursor_id=cursor.pk).state == "applied"


def test_d24_a_pause_and_its_end_are_on_record_with_who_and_why(provider: Provider) -> None:
    providing.pause(provider_id=provider.pk, **WHO)
    with pytest.raises(Invalid):
        providing.pause(provider_id=provider.pk, **WHO)
    providing.resume(provider_id=provider.pk, operator="ada", reason="paid")

    acts = list(Activity.objects.order_by("pk").values_list("act", "who", "reason"))
    assert acts == [
        ("pause provider", "operator:olga", "the bill is too high"),
        ("resume provider", "operator:ada", "paid"),
    ]


def test_d19_a_call_that_gets_through_does_not_end_an_operators_pause(
    server: ModelServer, provider: Provider, tell: Tell
) -> None:
    cursor = cursor_of(tell("A fact."))

    def at(point: str) -> None:
        if point == "call.after":
            providing.pause(provider_id=provider.pk, **WHO)

    faults.install(at)
    try:
        assert distilling.run_cursor(cursor_id=cursor.pk).state == "applied"
    finally:
        faults.install(None)
    provider.refresh_from_db()
    assert provider.stopped_by == "operator:olga"


def test_d19_resuming_ends_the_pause_that_failures_brought(server: ModelServer, provider: Provider, tell: Tell) -> None:
    cursor = cursor_of(tell("A fact."))
    server.script(model_server.status(401, error_type="authentication_error", words="invalid key"))
    assert distilling.run_cursor(cursor_id=cursor.pk).state == "blocked"

    providing.resume(provider_id=provider.pk, **WHO)

    provider.refresh_from_db()
    assert (provider.failures, provider.paused_until) == (0, None)
    assert distilling.run_cursor(cursor_id=cursor.pk).state == "applied"


def test_a_test_shows_what_came_back_and_keeps_it_on_record(server: ModelServer, provider: Provider) -> None:
    server.script(model_server.raw_text("ready"))

    tried = providing.try_out(provider_id=provider.pk, **WHO)

    assert (tried.ok, tried.text, tried.input_tokens, tried.output_tokens) == (True, "ready", 100, 20)
    assert server.requests[0].body["model"] == provider.default_model
    assert server.requests[0].body["max_tokens"] == providing.TEST_TOKENS
    found = providing.last_test(provider)
    assert found is not None
    assert (found.who, found.detail["text"], found.detail["ok"]) == ("operator:olga", "ready", True)


def test_a_test_that_fails_shows_the_real_error_and_pauses_nothing(server: ModelServer, provider: Provider) -> None:
    server.script(model_server.status(401, error_type="authentication_error", words="the key sk-of-tests is invalid"))

    tried = providing.try_out(provider_id=provider.pk, **WHO)

    assert not tried.ok
    assert tried.error == "authentication: HTTP 401 authentication_error: the key [key] is invalid"
    provider.refresh_from_db()
    assert (provider.failures, provider.paused_until) == (0, None)


@pytest.mark.parametrize(("kind", "says"), [("offline", "without a model"), ("acp", "cannot be used for extraction")])
def test_a_test_of_what_has_no_model_says_what_it_is(db: None, kind: str, says: str) -> None:
    row = ProviderFactory.create(kind=kind, key_variable="", address="")

    tried = providing.try_out(provider_id=row.pk, **WHO)

    assert not tried.called
    assert says in tried.text


def test_a_test_without_a_key_or_at_a_private_address_says_so(settings: Settings) -> None:
    settings.AGENTMEMORY_PROVIDER_KEYS = {}
    row = ProviderFactory.create(address="https://example.com")
    assert providing.try_out(provider_id=row.pk, **WHO).error == "ANTHROPIC_API_KEY is not set."

    settings.AGENTMEMORY_PROVIDER_KEYS = {"ANTHROPIC_API_KEY": "sk-of-tests"}
    settings.AGENTMEMORY_ALLOW_PRIVATE_ADDRESSES = False
    Provider.objects.filter(pk=row.pk).update(address="http://127.0.0.1:9")
    assert "private" in providing.try_out(provider_id=row.pk, **WHO).error


@pytest.mark.parametrize(
    "address", ["ftp://example.com", "example.com", "http://", "http://[", "https://user:sk-key@example.com/"]
)
def test_an_address_that_is_none_is_told(address: str) -> None:
    with pytest.raises(Invalid):
        providers.check_address(address)


def test_calls_of_the_last_day_are_counted_by_provider(server: ModelServer, provider: Provider, tell: Tell) -> None:
    cursor = cursor_of(tell("A fact."))
    server.script(model_server.refusal())
    distilling.run_cursor(cursor_id=cursor.pk)
    distilling.run_cursor(cursor_id=cursor.pk, force=True)
    old = timezone.now() - timedelta(days=2)
    DistillationPass.objects.create(
        space=cursor.space,
        agent=cursor.agent,
        session_name="s",
        epoch=0,
        start=0,
        end=0,
        provider=provider,
        started_at=old,
    )

    calls = providing.calls_in_the_last_day()[provider.pk]

    assert (calls.made, calls.failed) == (2, 1)
