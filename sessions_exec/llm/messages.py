"""What is asked of a model, what it answered, and how a call can fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where a provider is reached: nothing else routes a call (D18). The key is never shown."""

    address: str
    key: str = field(repr=False)
    timeout_seconds: float
    """Bound of the whole call, from connecting to the last byte (D7)."""


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """One question to a model. With a `schema`, structured output of that JSON Schema is asked for."""

    model: str
    system: str
    prompt: str
    max_tokens: int
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class ModelReply:
    """A complete answer with text in it; everything less is a `ModelCallFailed`."""

    text: str
    stop_reason: str
    input_tokens: int
    output_tokens: int
    model: str


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """What a model is asked to go on with. `messages` and `tools` have the shapes of the Anthropic wire.

    Without `may_call` the tools are named, because the conversation speaks of them, and none may be called.
    """

    system: str
    messages: Sequence[Mapping[str, Any]]
    max_tokens: int
    tools: Sequence[Mapping[str, Any]] = ()
    may_call: bool = True


@dataclass(frozen=True, kw_only=True)
class ConversationReply:
    """What a model went on with: text and tool calls, in their order. Whether it is whole, `stop_reason` says."""

    blocks: Sequence[dict[str, Any]]
    stop_reason: str
    input_tokens: int
    output_tokens: int
    model: str

    @property
    def text(self) -> str:
        """The words alone."""
        return "\n\n".join(block["text"] for block in self.blocks if block["type"] == "text")


class CallStopped(Exception):
    """A call was broken off from this side, as it was asked to be. `text` and the tokens are what came before."""

    def __init__(self, *, text: str = "", input_tokens: int = 0, output_tokens: int = 0) -> None:
        super().__init__("the call was broken off")
        self.text = text
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens


class FailureKind(StrEnum):
    """Why a call failed; the kind decides what follows (D7, D19, D20)."""

    CONNECTION = "connection"
    TIMEOUT = "timeout"
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    SERVER = "server"
    AUTHENTICATION = "authentication"
    QUOTA = "quota"
    INVALID_REQUEST = "invalid_request"
    """The provider refuses the request as such (an unknown model included): the cursor backs off, and the
    window is not suspected."""
    REFUSAL = "refusal"
    EMPTY = "empty"
    CUT = "cut"


WINDOW_AT_FAULT = frozenset({FailureKind.REFUSAL, FailureKind.EMPTY, FailureKind.CUT, FailureKind.TIMEOUT})
PROVIDER_WIDE = frozenset({FailureKind.AUTHENTICATION, FailureKind.QUOTA})


class ModelCallFailed(Exception):
    """A call that brought no complete answer. Never mistaken for "nothing found" (D7).

    `message` is the provider's own words, without the key. `text` is what came before the failure, and the
    token counts are what the provider reported, 0 when it reported nothing (D25). `retry_after` is in
    seconds.
    """

    def __init__(
        self,
        *,
        kind: FailureKind,
        message: str,
        retry_after: float | None = None,
        input_tokens: int = 0,
        output_tokens: int = 0,
        text: str = "",
    ) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message
        self.retry_after = retry_after
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens
        self.text = text

    @property
    def window_at_fault(self) -> bool:
        """Whether what was asked may itself be the cause, so that it counts towards quarantine (D20)."""
        return self.kind in WINDOW_AT_FAULT

    @property
    def provider_wide(self) -> bool:
        """Whether every call to this provider would fail alike, so that it pauses as a whole (D19)."""
        return self.kind in PROVIDER_WIDE
