"""What operators do with providers (D19, D24): paused by hand, resumed, tried out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta

import pytest
from django.utils import timezone
from pytest_django import Settings

from agentmemory.errors import Invalid
from agentmemory.models import Activity, Provider
from agentmemory.services import providers
from distillation.models import Cursor, DistillationPass
from distillation.services import calls, distilling, providing
from sessions_exec import faults
from sessions_exec.models import ModelCall
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

    asked = calls.in_the_last_day()[provider.pk]

    assert (asked.made, asked.failed) == (2, 1)


def fail(cursor: Cursor, *, times: int) -> None:
    for _ in range(times):
        distilling.run_pass(cursor_id=cursor.pk, force=True)


def of(provider: Provider) -> calls.Calls:
    return calls.in_the_last_day()[provider.pk]


def test_a_provider_whose_last_calls_all_failed_is_found_with_what_the_last_one_said(
    server: ModelServer, provider: Provider, tell: Tell
) -> None:
    """Nothing pauses it, since no window and no key is to blame: it was said to be ready."""
    cursor = cursor_of(tell("A fact."))
    server.script(*[model_server.status(500)] * 4)
    fail(cursor, times=2)
    asked = of(provider)
    assert (asked.made, asked.failed, asked.in_a_row, asked.failing) == (2, 2, 2, True)
    assert calls.failing() == []

    fail(cursor, times=1)
    ((found, asked),) = calls.failing()
    assert (found, asked.in_a_row) == (provider, 3)
    assert asked.line(private=True).startswith("its last 3 calls failed, none got through in a day: ")
    assert asked.error in DistillationPass.objects.latest("pk").error

    fail(cursor, times=2)
    assert (of(provider).in_a_row, of(provider).failing, calls.failing()) == (0, False, [])


def test_a_test_that_brought_an_answer_ends_a_row_of_failures_and_one_without_does_not(
    server: ModelServer, provider: Provider, tell: Tell
) -> None:
    server.script(*[model_server.status(500)] * 4)
    fail(cursor_of(tell("A fact.")), times=3)
    providing.try_out(provider_id=provider.pk, **WHO)
    assert of(provider).in_a_row == 3
    providing.try_out(provider_id=provider.pk, **WHO)
    assert of(provider).in_a_row == 0


def test_what_says_nothing_of_a_provider_is_no_failure_of_its(provider: Provider, tell: Tell) -> None:
    cursor = cursor_of(tell("A fact."))
    for epoch, kind in enumerate(("killed", "stopped", "lease_lost", "all_refused", "connection")):
        DistillationPass.objects.create(
            space=cursor.space, agent=cursor.agent, session_name="s", start=0, end=0, epoch=epoch,
            provider=provider, outcome="failed", failure=kind,
        )  # fmt: skip
    assert (of(provider).failed, of(provider).in_a_row, of(provider).said(private=True)) == (5, 1, "connection")


def test_runs_and_passes_of_one_provider_are_told_together(provider: Provider, tell: Tell) -> None:
    cursor = cursor_of(tell("A fact."))
    now = timezone.now()
    same = {"space": cursor.space, "agent": cursor.agent, "provider": provider}
    window = {"session_name": "s", "start": 0, "end": 0}
    call = {"epoch": 1, "purpose": "answer", "provider_name": "anthropic", "model": "m"}
    for minutes, outcome in ((9, "failed"), (8, "answered"), (3, "failed")):
        ModelCall.objects.create(**same, **call, outcome=outcome, started_at=now - timedelta(minutes=minutes))
    for minutes in (7, 2):
        at = {"epoch": minutes, "started_at": now - timedelta(minutes=minutes)}
        DistillationPass.objects.create(**same, **window, **at, outcome="failed", failure="timeout", error="too\nlong")
    assert (of(provider).in_a_row, of(provider).error) == (3, "too")


def test_each_failed_pass_is_one_line_of_the_log_without_content(
    server: ModelServer, provider: Provider, tell: Tell, caplog: pytest.LogCaptureFixture,
    django_capture_on_commit_callbacks: Callable[..., AbstractContextManager[object]],
) -> None:  # fmt: skip
    cursor = cursor_of(tell("A fact."))
    server.script(model_server.status(500, words="what was said"))
    with django_capture_on_commit_callbacks(execute=True):
        fail(cursor, times=2)
    (line,) = [vars(record) for record in caplog.records if getattr(record, "action", "") == "pass.failed"]
    row = DistillationPass.objects.earliest("pk")
    assert (line["levelname"], line["pass_id"], line["cursor_id"]) == ("WARNING", row.pk, cursor.pk)
    assert (line["provider"], line["kind"]) == ("anthropic", row.failure)
    assert "what was said" not in str(line)
