"""One call to a provider that speaks the Anthropic wire, through its SDK, with the whole answer at once.

The client is made for one call with an explicit address, key and time limit, no retries of its own, no proxy
and no telemetry; calls to different providers can run side by side in threads (D18).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from sessions_exec import loops
from sessions_exec.llm import failures
from sessions_exec.llm.messages import Endpoint, FailureKind, ModelCallFailed, ModelReply, ModelRequest

if TYPE_CHECKING:
    import anthropic
    import httpx2

T = TypeVar("T")

API_VERSION = "2026-10-21"
"""The version that the SDK in the required range speaks."""

MOST_TOKENS = 10_000_000
"""More than any model takes. What claims more must fit its column, and so must its cost (A4)."""

FINISHED = frozenset({"end_turn", "stop_sequence"})
CUT = frozenset({"max_tokens", "model_context_window_exceeded"})


def complete(endpoint: Endpoint, request: ModelRequest) -> ModelReply:
    """Ask once and return the whole answer, in `endpoint.timeout_seconds` from connecting to the last byte.

    Blocks the calling thread; it may be one in which an event loop runs, which then stands still meanwhile.
    Raises `ModelCallFailed` and nothing else.
    """

    async def work() -> ModelReply:
        return _reply(await bounded(endpoint, lambda: _ask(endpoint, request)), asked=request.model)

    return call(endpoint, work)


def call(endpoint: Endpoint, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Do one call's work to its end. Raises `ModelCallFailed`, without the key, and what else the work raises."""
    _check_key(endpoint.key)
    try:
        return loops.run(work())
    except ModelCallFailed as failure:
        failure.message = failures.clipped(failure.message, secret=endpoint.key)
        failure.args = (f"{failure.kind}: {failure.message}",)
        raise


def _check_key(key: str) -> None:
    if not key.strip():
        raise ModelCallFailed(kind=FailureKind.AUTHENTICATION, message="no key is set for this provider")
    if not (key.isascii() and key.isprintable()):
        message = "the key holds characters that a header cannot carry"
        raise ModelCallFailed(kind=FailureKind.AUTHENTICATION, message=message)


async def bounded(endpoint: Endpoint, asking: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What `asking` brings within the time of a whole call. Raises `ModelCallFailed` for each way that it can fail."""
    # Before the clock starts: the first import takes seconds and is no part of the call.
    import anthropic
    import httpx2

    try:
        # A read timeout starts again with every byte, and a server can drip them for ever: only this ends the
        # call as a whole.
        async with asyncio.timeout(endpoint.timeout_seconds):
            return await asking()
    except (TimeoutError, anthropic.APITimeoutError, httpx2.TimeoutException) as error:
        message = f"no complete answer within {endpoint.timeout_seconds:g} s"
        raise ModelCallFailed(kind=FailureKind.TIMEOUT, message=message) from error
    except anthropic.APIStatusError as error:
        raise _of_status(error) from error
    except anthropic.APIConnectionError as error:
        raise ModelCallFailed(kind=FailureKind.CONNECTION, message=_causes(error)) from error
    except (
        anthropic.AnthropicError,
        httpx2.HTTPError,
        httpx2.InvalidURL,
        OSError,
        ValueError,
        RecursionError,
    ) as error:
        # Not one of the ways above: an answer that is no message, or an address that is none.
        raise ModelCallFailed(kind=FailureKind.SERVER, message=_causes(error)) from error


def client(endpoint: Endpoint, *, accept: str = "application/json") -> anthropic.AsyncAnthropic:
    """A client for one call: nothing but `endpoint` routes it, and it tries once (D18)."""
    import anthropic

    return anthropic.AsyncAnthropic(
        api_key=endpoint.key,
        base_url=endpoint.address,
        max_retries=0,
        timeout=endpoint.timeout_seconds,
        open_telemetry=False,
        http_client=_http_client(endpoint, accept),
    )


async def _ask(endpoint: Endpoint, request: ModelRequest) -> object:
    async with client(endpoint) as asking:
        raw = await asking.messages.with_raw_response.create(**_arguments(request))
        try:
            return raw.http_response.json()
        except ValueError as error:
            raise ModelCallFailed(kind=FailureKind.SERVER, message=f"the answer is no JSON: {error}") from error


def _of_status(error: anthropic.APIStatusError) -> ModelCallFailed:
    """The failure that a status tells, or an error that came within an answer whose status was good."""
    if error.status_code < 300:
        error_type, words = failures.describe(error.body)
        kind = failures.kind_of_error(error_type=error_type, words=words)
        return ModelCallFailed(kind=kind, message=f"an error came with the answer: {error_type} {words}")
    return failures.from_status(status=error.status_code, headers=error.response.headers, body=error.body)


def _http_client(endpoint: Endpoint, accept: str) -> httpx2.AsyncClient:
    import anthropic

    from sessions_exec.llm import transport

    agent = f"agent-memory (anthropic-sdk {anthropic.__version__})"
    return anthropic.DefaultAsyncHttpxClient(
        trust_env=False,
        # A redirect would carry the key to an address that nobody chose.
        follow_redirects=False,
        timeout=endpoint.timeout_seconds,
        transport=transport.PlainTransport(headers={**_headers(endpoint, accept), "User-Agent": agent}),
    )


def _headers(endpoint: Endpoint, accept: str) -> dict[str, str]:
    """All headers of a call. The SDK's own are left out: it mixes in those of `ANTHROPIC_CUSTOM_HEADERS`."""
    return {
        "Authorization": f"Bearer {endpoint.key}",
        "anthropic-version": API_VERSION,
        "Content-Type": "application/json",
        "Accept": accept,
    }


def _arguments(request: ModelRequest) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.max_tokens,
        "system": failures.readable(request.system),
        "messages": [{"role": "user", "content": failures.readable(request.prompt)}],
    }
    if request.schema is not None:
        arguments["output_config"] = {"format": {"type": "json_schema", "schema": dict(request.schema)}}
    return arguments


def _reply(message: object, *, asked: str) -> ModelReply:
    """The answer in a 2xx body, if it is a whole one; its usage and its text go with every failure (D25)."""
    if not isinstance(message, Mapping):
        raise ModelCallFailed(kind=FailureKind.SERVER, message=f"the answer is no message: {message!r}")
    text = _text(message)
    usage = message.get("usage")
    known: dict[str, Any] = {
        "text": text,
        "input_tokens": tokens(usage, "input"),
        "output_tokens": tokens(usage, "output"),
    }
    if message.get("error") or message.get("type") == "error":
        error_type, words = failures.describe(message)
        kind = failures.kind_of_error(error_type=error_type, words=words)
        raise ModelCallFailed(kind=kind, message=f"an error came with the answer: {error_type} {words}", **known)
    stop_reason = str(message.get("stop_reason") or "end_turn")
    if failure := _incomplete(stop_reason, text=text):
        raise ModelCallFailed(kind=failure[0], message=failure[1], **known)
    return ModelReply(stop_reason=stop_reason, model=str(message.get("model") or asked), **known)


def _incomplete(stop_reason: str, *, text: str) -> tuple[FailureKind, str] | None:
    if stop_reason == "refusal":
        return FailureKind.REFUSAL, "the model refused to answer"
    if stop_reason in CUT:
        return FailureKind.CUT, f"the answer was cut ({stop_reason})"
    if stop_reason == "error":
        return FailureKind.SERVER, "the answer ended in an error"
    if stop_reason not in FINISHED:
        return FailureKind.EMPTY, f"the model did not finish an answer (stop reason {stop_reason})"
    if not text.strip():
        return FailureKind.EMPTY, "the answer has no text"
    return None


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    texts = [block.get("text") for block in blocks if isinstance(block, Mapping) and block.get("type") == "text"]
    return failures.readable("".join(text for text in texts if isinstance(text, str)))


def tokens(usage: object, side: Literal["input", "output"]) -> int:
    """Tokens the provider counted, those of its cache as input; `MOST_TOKENS` at most."""
    if not isinstance(usage, Mapping):
        return 0
    names = ["output_tokens"]
    if side == "input":
        names = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"]
    counts = [usage.get(name) for name in names]
    return min(MOST_TOKENS, sum(count for count in counts if isinstance(count, int) and count > 0))


def _causes(error: BaseException) -> str:
    """The error's words and those of what lies beneath: the SDK says only "Connection error."."""
    words: list[str] = []
    current: BaseException | None = error
    while current is not None and len(words) < 5:
        words.append(str(current).rstrip(".") or type(current).__name__)
        current = current.__cause__
    return ": ".join(dict.fromkeys(words))
