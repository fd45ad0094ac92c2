"""The model call against a server that speaks the wire: answers, every way to fail, hostile surroundings."""

from __future__ import annotations

import asyncio
import dataclasses
import email.utils
import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sessions_exec.llm import anthropic_client, failures, transport
from sessions_exec.llm.messages import Endpoint, FailureKind, ModelCallFailed, ModelReply, ModelRequest
from tests.support import model_server
from tests.support.model_server import ModelServer, Reply

KEY = "sk-test-0123456789"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


def ask(server: ModelServer, *, timeout: float = 20.0, **changes: Any) -> ModelReply:
    request = ModelRequest(model="m-1", system="be brief", prompt="[1] user: hi", max_tokens=50)
    endpoint = Endpoint(address=server.address, key=KEY, timeout_seconds=timeout)
    return anthropic_client.complete(endpoint, dataclasses.replace(request, **changes))


def failure(server: ModelServer, behaviour: model_server.Behaviour, *, timeout: float = 20.0) -> ModelCallFailed:
    server.script(behaviour)
    with pytest.raises(ModelCallFailed) as caught:
        ask(server, timeout=timeout)
    return caught.value


def test_an_answer_comes_with_its_usage_and_one_request_is_made(server: ModelServer) -> None:
    server.script(model_server.raw_text('{"memories": []}'))
    reply = ask(server)
    assert reply == ModelReply(
        text='{"memories": []}',
        stop_reason="end_turn",
        input_tokens=100,
        output_tokens=20,
        model="test-model",
    )
    (request,) = server.requests
    assert request.path == "/v1/messages"
    assert request.body == {
        "model": "m-1",
        "max_tokens": 50,
        "system": "be brief",
        "messages": [{"role": "user", "content": "[1] user: hi"}],
    }


def test_structured_output_is_asked_for_only_with_a_schema(server: ModelServer) -> None:
    ask(server, schema={"type": "object"})
    assert server.requests[0].body["output_config"] == {"format": {"type": "json_schema", "schema": {"type": "object"}}}


@pytest.mark.parametrize(
    ("code", "error_type", "words", "kind"),
    [
        (400, "invalid_request_error", "bad field", FailureKind.INVALID_REQUEST),
        (400, "invalid_request_error", "Your credit balance is too low to access", FailureKind.QUOTA),
        (401, "authentication_error", "invalid key", FailureKind.AUTHENTICATION),
        (402, "billing_error", "pay", FailureKind.QUOTA),
        (403, "permission_error", "no", FailureKind.AUTHENTICATION),
        (404, "not_found_error", "model: m-1", FailureKind.INVALID_REQUEST),
        (408, "timeout_error", "slow", FailureKind.SERVER),
        (413, "request_too_large", "big", FailureKind.INVALID_REQUEST),
        (429, "rate_limit_error", "slow down", FailureKind.RATE_LIMITED),
        (429, "insufficient_quota", "You exceeded your current quota", FailureKind.QUOTA),
        (500, "api_error", "oops", FailureKind.SERVER),
        (503, "api_error", "down", FailureKind.SERVER),
        (529, "overloaded_error", "Overloaded", FailureKind.OVERLOADED),
    ],
)
def test_d20_a_status_tells_whose_fault_it_is(
    server: ModelServer, code: int, error_type: str, words: str, kind: FailureKind
) -> None:
    caught = failure(server, model_server.status(code, error_type=error_type, words=words))
    assert caught.kind == kind
    assert words in caught.message
    assert str(code) in caught.message
    assert not caught.window_at_fault
    assert caught.provider_wide == (kind in (FailureKind.AUTHENTICATION, FailureKind.QUOTA))
    assert len(server.requests) == 1, "the client must not retry"


@pytest.mark.parametrize(
    ("behaviour", "kind", "window_at_fault"),
    [
        (model_server.refusal(), FailureKind.REFUSAL, True),
        (model_server.cut("half an ans"), FailureKind.CUT, True),
        (model_server.empty(), FailureKind.EMPTY, True),
        (model_server.raw_text("  \n "), FailureKind.EMPTY, True),
        (
            lambda _: model_server.message("x", stop_reason="model_context_window_exceeded"),
            FailureKind.CUT,
            True,
        ),
        (lambda _: model_server.message("x", stop_reason="tool_use"), FailureKind.EMPTY, True),
        (lambda _: model_server.message("x", stop_reason="error"), FailureKind.SERVER, False),
        (model_server.malformed_body(), FailureKind.SERVER, False),
        (lambda _: Reply(body=b"[1, 2]"), FailureKind.SERVER, False),
        (lambda _: Reply(body=b"<html>", headers={"Content-Type": "text/html"}), FailureKind.SERVER, False),
        (lambda _: Reply(body=b""), FailureKind.SERVER, False),
        (lambda _: Reply(body=b"[" * 200_000), FailureKind.SERVER, False),
        (model_server.drop(), FailureKind.CONNECTION, False),
        (model_server.error_after_text(), FailureKind.SERVER, False),
    ],
)
def test_d7_an_answer_that_is_not_whole_is_a_failure(
    server: ModelServer, behaviour: model_server.Behaviour, kind: FailureKind, window_at_fault: bool
) -> None:
    caught = failure(server, behaviour)
    assert (caught.kind, caught.window_at_fault, caught.provider_wide) == (kind, window_at_fault, False)
    assert caught.message


def test_d25_usage_and_text_are_kept_on_failures(server: ModelServer) -> None:
    caught = failure(server, model_server.cut("half"))
    assert (caught.text, caught.input_tokens, caught.output_tokens) == ("half", 100, 20)
    caught = failure(server, model_server.error_after_text("whole"))
    assert (caught.text, caught.input_tokens, caught.output_tokens) == ("whole", 100, 20)
    assert "failed after the text" in caught.message


def test_d25_cached_input_tokens_are_input(server: ModelServer) -> None:
    usage = {
        "input_tokens": 3,
        "output_tokens": 2,
        "cache_read_input_tokens": 40,
        "cache_creation_input_tokens": 5,
    }
    server.script(lambda _: model_server.message("x", usage=usage))
    reply = ask(server)
    assert (reply.input_tokens, reply.output_tokens) == (48, 2)


def test_a4_a_count_of_tokens_that_no_model_takes_is_bounded(server: ModelServer) -> None:
    """It would be out of the range of its column: the answer would be lost, and paid for again and again."""
    server.script(lambda _: model_server.message("x", usage={"input_tokens": 10**30, "output_tokens": 2}))
    reply = ask(server)
    assert (reply.input_tokens, reply.output_tokens) == (anthropic_client.MOST_TOKENS, 2)


def test_a_page_in_place_of_an_answer_is_called_no_json(server: ModelServer) -> None:
    caught = failure(server, lambda _: Reply(body=b"<html>", headers={"Content-Type": "text/html"}))
    assert "the answer is no JSON" in caught.message


def test_an_error_document_in_a_good_status_keeps_its_kind(server: ModelServer) -> None:
    document = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    caught = failure(server, lambda _: Reply(body=json.dumps(document).encode()))
    assert caught.kind == FailureKind.OVERLOADED
    assert "busy" in caught.message


@pytest.mark.parametrize("behaviour", [model_server.hang(30), model_server.drip(0.05)])
def test_d7_the_call_timeout_bounds_the_call_to_its_last_byte(
    server: ModelServer, behaviour: model_server.Behaviour
) -> None:
    ask(server)  # the SDK's import is not part of a call
    begin = time.monotonic()
    caught = failure(server, behaviour, timeout=0.6)
    assert caught.kind == FailureKind.TIMEOUT
    assert caught.window_at_fault
    assert time.monotonic() - begin < 2.0


def test_d7_the_call_timeout_bounds_the_name_lookup(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(server)

    def stuck(*_args: object, **_kwargs: object) -> list[object]:
        time.sleep(3)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", stuck)
    request = ModelRequest(model="m", system="", prompt="x", max_tokens=5)
    begin = time.monotonic()
    with pytest.raises(ModelCallFailed) as caught:
        anthropic_client.complete(Endpoint(address="http://model.invalid", key=KEY, timeout_seconds=0.5), request)
    assert caught.value.kind == FailureKind.TIMEOUT
    assert time.monotonic() - begin < 1.5


def test_nobody_listening_is_a_connection_failure_with_its_cause() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    request = ModelRequest(model="m", system="", prompt="x", max_tokens=5)
    with pytest.raises(ModelCallFailed) as caught:
        anthropic_client.complete(Endpoint(address=address, key=KEY, timeout_seconds=5), request)
    assert caught.value.kind == FailureKind.CONNECTION
    assert "attempts failed" in caught.value.message or "refused" in caught.value.message


@pytest.mark.parametrize("address", ["", "not an address", "ftp://x", "http://[bad", "http://a:99999"])
def test_an_unusable_address_is_an_orderly_failure(address: str) -> None:
    request = ModelRequest(model="m", system="", prompt="x", max_tokens=5)
    with pytest.raises(ModelCallFailed) as caught:
        anthropic_client.complete(Endpoint(address=address, key=KEY, timeout_seconds=5), request)
    assert not caught.value.window_at_fault


@pytest.mark.parametrize("key", ["", "  ", "sk-\n1", "sk-é"])
def test_an_unusable_key_is_an_authentication_failure_without_a_call(server: ModelServer, key: str) -> None:
    request = ModelRequest(model="m", system="", prompt="x", max_tokens=5)
    with pytest.raises(ModelCallFailed) as caught:
        anthropic_client.complete(Endpoint(address=server.address, key=key, timeout_seconds=5), request)
    assert caught.value.provider_wide
    assert server.requests == []


def test_the_key_is_in_no_error_and_no_repr(server: ModelServer) -> None:
    caught = failure(server, model_server.status(401, words=f"invalid key {KEY}"))
    assert KEY not in caught.message
    assert KEY not in str(caught)
    assert KEY not in repr(Endpoint(address="a", key=KEY, timeout_seconds=1))


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("1.5", 1.5),
        ("-3", None),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("1e300", 604800.0),
    ],
)
def test_retry_after_is_read_in_seconds(server: ModelServer, header: str, seconds: float | None) -> None:
    caught = failure(server, model_server.status(429, headers={"retry-after": header}))
    assert caught.retry_after == seconds


def test_retry_after_is_read_as_a_date() -> None:
    seconds = failures.retry_after({"retry-after": email.utils.formatdate(time.time() + 90, usegmt=True)})
    assert seconds is not None
    assert 80 < seconds <= 90


def test_d18_nothing_ambient_reroutes_or_adds_to_a_call(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with ModelServer() as trap:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, trap.address)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", trap.address)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "ambient-key")
        monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "ambient-token")
        monkeypatch.setenv("ANTHROPIC_PROFILE", "ambient")
        monkeypatch.setenv("ANTHROPIC_WORKSPACE_ID", "ambient-workspace")
        hostile = [
            "X-Leak: ambient-leak",
            "Authorization: Bearer ambient-override",
            "x-api-key: ambient-key",
            "anthropic-version: ambient-version",
            "anthropic-beta: ambient-beta",
            "Host: ambient-host",
            "Content-Length: 1",
            "Transfer-Encoding: ambient",
        ]
        monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "\n".join(hostile))
        server.script(model_server.raw_text("fine"))
        assert ask(server).text == "fine"
        assert trap.requests == []
    (request,) = server.requests
    assert "ambient" not in json.dumps(vars(request))
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert set(request.headers) == {
        "host",
        "authorization",
        "anthropic-version",
        "content-type",
        "accept",
        "user-agent",
        "accept-encoding",
        "content-length",
    }


def test_d18_a_redirect_is_not_followed(server: ModelServer) -> None:
    with ModelServer() as trap:
        location = {"Location": f"{trap.address}/v1/messages"}
        caught = failure(server, model_server.status(307, headers=location))
        assert caught.kind == FailureKind.INVALID_REQUEST
        assert trap.requests == []


def test_d18_the_version_header_is_the_one_the_sdk_speaks() -> None:
    from anthropic import _constants

    assert anthropic_client.API_VERSION == _constants.ANTHROPIC_API_VERSION


def test_d18_calls_to_different_providers_run_side_by_side() -> None:
    with ModelServer() as one, ModelServer() as two:
        ask(one)
        one.script(model_server.hang(0.7))
        two.script(model_server.hang(0.7))
        threads = [threading.Thread(target=ask, args=(each,)) for each in (one, two)]
        begin = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert time.monotonic() - begin < 1.3
        assert (len(one.requests), len(two.requests)) == (2, 1)


def test_a_call_works_where_an_event_loop_runs(server: ModelServer) -> None:
    server.script(model_server.raw_text("fine"))

    async def main() -> str:
        return ask(server).text

    assert asyncio.run(main()) == "fine"


@pytest.mark.filterwarnings("error")
def test_a_signal_that_ends_the_task_ends_the_call_and_closes_its_connection(server: ModelServer) -> None:
    class TaskTimeout(SystemExit):
        """As the task cluster raises it."""

    def out(_number: int, _frame: object) -> None:
        raise TaskTimeout

    ask(server)
    server.script(model_server.hang(30))
    before = signal.signal(signal.SIGALRM, out)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    begin = time.monotonic()
    try:
        with pytest.raises(TaskTimeout):
            ask(server)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - begin < 2.0


def test_a4_the_answer_is_bounded(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport.PlainTransport.__init__, "__kwdefaults__", {"limit": 1_000})
    caught = failure(server, model_server.raw_text("x" * 2_000))
    assert caught.kind == FailureKind.CONNECTION
    assert "larger than 1000 bytes" in caught.message


def test_a4_a_compressed_answer_is_not_unfolded(server: ModelServer) -> None:
    caught = failure(server, lambda _: Reply(body=b"\x1f\x8b", headers={"Content-Encoding": "gzip"}))
    assert "compressed" in caught.message


def test_what_json_and_the_database_cannot_hold_is_replaced_on_both_ways(server: ModelServer) -> None:
    server.script(model_server.raw_text("a\ud800b\0c"))
    reply = ask(server, prompt="x\udfffy\0z \U0001f600")
    assert server.requests[0].prompt == "x\ufffdy\ufffdz \U0001f600"
    assert reply.text == "a\ufffdb\ufffdc"
