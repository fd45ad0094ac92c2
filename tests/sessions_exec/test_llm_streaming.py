"""The streamed call against a server that speaks the wire: what is heard, how it is broken off, every way to fail."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from sessions_exec.llm import failures, streaming
from sessions_exec.llm.messages import (
    CallStopped,
    Conversation,
    ConversationReply,
    Endpoint,
    FailureKind,
    ModelCallFailed,
)
from tests.support import model_server
from tests.support.model_server import ModelServer, Reply

KEY = "sk-test-0123456789"
CALL = {"id": "toolu_1", "name": "memory_search", "input": {"query": "résumé of ada"}}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


def ask(
    server: ModelServer,
    *,
    timeout: float = 20.0,
    heard: list[str] | None = None,
    stop: threading.Event | None = None,
    **changes: Any,
) -> ConversationReply:
    said = {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "system": "be brief"}
    conversation = Conversation(**{**said, "max_tokens": 50, **changes})
    return streaming.converse(
        Endpoint(address=server.address, key=KEY, timeout_seconds=timeout),
        conversation=conversation,
        heard=streaming.Heard(model="m-1", on_text=(heard if heard is not None else []).append),
        stop=stop or threading.Event(),
    )


def failure(server: ModelServer, behaviour: model_server.Behaviour, *, timeout: float = 20.0) -> ModelCallFailed:
    server.script(behaviour)
    with pytest.raises(ModelCallFailed) as caught:
        ask(server, timeout=timeout)
    assert len(server.requests) == 1
    return caught.value


def test_an_answer_is_heard_while_it_comes_and_is_whole_at_the_end(server: ModelServer) -> None:
    server.script(model_server.streamed("Hel", "lo.", calls=[CALL]))
    heard: list[str] = []
    reply = ask(server, heard=heard, tools=[{"name": "memory_search", "input_schema": {"type": "object"}}])
    assert heard == ["Hel", "lo."]
    assert reply == ConversationReply(
        blocks=[{"type": "text", "text": "Hello."}, {"type": "tool_use", **CALL}],
        stop_reason="tool_use",
        input_tokens=100,
        output_tokens=20,
        model="test-model",
    )
    (request,) = server.requests
    assert request.body == {
        "model": "m-1",
        "max_tokens": 50,
        "system": "be brief",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        "tools": [{"name": "memory_search", "input_schema": {"type": "object"}}],
        "stream": True,
    }


def test_tools_that_may_not_be_called_are_named_all_the_same(server: ModelServer) -> None:
    server.script(model_server.streamed("No."))
    ask(server, tools=[{"name": "t", "input_schema": {"type": "object"}}], may_call=False)
    assert server.requests[0].body["tool_choice"] == {"type": "none"}


def test_d18_nothing_ambient_reaches_a_streamed_call(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_BASE_URL", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "ambient")
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "x-ambient: yes")
    server.script(model_server.streamed("Hello."))
    ask(server)
    headers = server.requests[0].headers
    assert headers["authorization"] == f"Bearer {KEY}"
    assert headers["accept"] == "text/event-stream"
    assert not [name for name in headers if "ambient" in name or name.startswith("x-")]


@pytest.mark.parametrize(
    ("behaviour", "kind"),
    [
        (model_server.status(529), FailureKind.OVERLOADED),
        (model_server.status(401, error_type="authentication_error"), FailureKind.AUTHENTICATION),
        (model_server.error_in_stream("overloaded_error"), FailureKind.OVERLOADED),
        (model_server.error_in_stream("rate_limit_error"), FailureKind.RATE_LIMITED),
        (model_server.drop(), FailureKind.CONNECTION),
        (model_server.streamed("Half an", end=False), FailureKind.CONNECTION),
        (
            lambda _: Reply(headers={"Content-Type": "text/event-stream"}, body=b"event: x\ndata: {\n\n"),
            FailureKind.SERVER,
        ),
        (model_server.raw_text("a whole one"), FailureKind.CONNECTION),
    ],
    ids=["529", "401", "overloaded", "limited", "dropped", "broken off", "unreadable", "not streamed"],
)
def test_each_way_to_fail_is_one_call_and_a_failure(
    server: ModelServer, behaviour: model_server.Behaviour, kind: FailureKind
) -> None:
    assert failure(server, behaviour).kind == kind


def test_what_came_before_a_failure_is_known_with_what_it_cost(server: ModelServer) -> None:
    failed = failure(server, model_server.streamed("Half an", end=False))
    assert (failed.text, failed.input_tokens) == ("Half an", 100)


def test_d7_the_call_as_a_whole_is_bounded_however_the_bytes_come(server: ModelServer) -> None:
    never = threading.Event()
    failed = failure(server, model_server.streamed("Half an", gate=never), timeout=0.5)
    assert (failed.kind, failed.text) == (FailureKind.TIMEOUT, "Half an")


def test_a_call_is_broken_off_when_it_is_asked_to_and_tells_what_had_come(server: ModelServer) -> None:
    never, stop = threading.Event(), threading.Event()
    server.script(model_server.streamed("Half an", gate=never))

    class Ears(list[str]):
        def append(self, text: str) -> None:
            stop.set()

    with pytest.raises(CallStopped) as caught:
        ask(server, stop=stop, heard=Ears())
    assert (caught.value.text, caught.value.input_tokens) == ("Half an", 100)


def test_a_call_that_is_stopped_before_it_begins_is_not_made(server: ModelServer) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(CallStopped):
        ask(server, stop=stop)
    assert server.requests == []


def test_the_key_is_in_no_failure(server: ModelServer) -> None:
    failed = failure(server, model_server.error_in_stream("api_error", words=f"bad key {KEY}"))
    assert KEY not in failed.message
    assert "[key]" in str(failed)


def test_arguments_that_are_no_json_are_kept_for_the_tool_to_refuse(server: ModelServer) -> None:
    heard = streaming.Heard(model="m", on_text=lambda _: None)
    block = {"type": "tool_use", "id": "t", "name": "memory_read", "input": {}}
    heard.take({"type": "content_block_start", "index": 0, "content_block": block})
    broken = {"type": "input_json_delta", "partial_json": '{"key": "a'}
    heard.take({"type": "content_block_delta", "index": 0, "delta": broken})
    heard.take({"type": "message_stop"})
    assert heard.reply().blocks == [{**block, "input": {"unreadable": '{"key": "a'}}]


@pytest.mark.parametrize(
    "words",
    ["prompt is too long: 210000 tokens > 200000 maximum", "This model's maximum context length is 8192 tokens"],
)
def test_s11_an_overflow_is_told_from_other_refusals(words: str) -> None:
    too_long = ModelCallFailed(kind=FailureKind.INVALID_REQUEST, message=words)
    assert failures.speaks_of_length(too_long)
    assert not failures.speaks_of_length(ModelCallFailed(kind=FailureKind.INVALID_REQUEST, message="bad field"))
