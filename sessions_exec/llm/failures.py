"""From a provider's error to a `ModelCallFailed`: which kind it is, and its own words (D7, D19, D20)."""

from __future__ import annotations

import email.utils
import math
import time
from collections.abc import Mapping

from sessions_exec.llm.messages import FailureKind, ModelCallFailed

MESSAGE_CHARS = 2_000
MAX_RETRY_AFTER = 7 * 86_400.0
"""A longer wait (or a broken header that reads as one) must not stop a provider for ever (A4)."""

BY_TYPE = {
    "authentication_error": FailureKind.AUTHENTICATION,
    "permission_error": FailureKind.AUTHENTICATION,
    "billing_error": FailureKind.QUOTA,
    "rate_limit_error": FailureKind.RATE_LIMITED,
    "overloaded_error": FailureKind.OVERLOADED,
    "timeout_error": FailureKind.SERVER,
    "api_error": FailureKind.SERVER,
    "invalid_request_error": FailureKind.INVALID_REQUEST,
    "not_found_error": FailureKind.INVALID_REQUEST,
}
BY_STATUS = {
    401: FailureKind.AUTHENTICATION,
    402: FailureKind.QUOTA,
    403: FailureKind.AUTHENTICATION,
    408: FailureKind.SERVER,
    409: FailureKind.SERVER,
    429: FailureKind.RATE_LIMITED,
    529: FailureKind.OVERLOADED,
}
# Spent credit comes as 400 from Anthropic, and as 429 from others.
QUOTA_WORDS = ("credit balance is too low", "insufficient_quota", "exceeded your current quota")

# There is no type of its own for it, on any wire.
LENGTH_WORDS = (
    "prompt is too long",
    "context length",
    "context_length",
    "context window",
    "context_window",
    "too many tokens",
    "maximum context",
    "request_too_large",
)


def from_status(*, status: int, headers: Mapping[str, str], body: object) -> ModelCallFailed:
    """The failure that an HTTP status other than 2xx tells."""
    error_type, words = describe(body)
    return ModelCallFailed(
        kind=_kind_of_status(status, error_type=error_type, words=words),
        message=clipped(f"HTTP {status}" + (f" {error_type}" if error_type else "") + f": {words or 'no body'}"),
        retry_after=retry_after(headers),
    )


def kind_of_error(*, error_type: str, words: str) -> FailureKind:
    """The kind of an error that came inside a 2xx answer."""
    if _speaks_of_quota(f"{error_type} {words}"):
        return FailureKind.QUOTA
    return BY_TYPE.get(error_type, FailureKind.SERVER)


def speaks_of_length(failure: ModelCallFailed) -> bool:
    """Whether a provider refused what it was asked for being longer than the model takes."""
    lowered = failure.message.lower()
    return failure.kind == FailureKind.INVALID_REQUEST and any(phrase in lowered for phrase in LENGTH_WORDS)


def describe(body: object) -> tuple[str, str]:
    """The error's type and its words, from a decoded error document or from whatever came instead."""
    error = body.get("error", body) if isinstance(body, Mapping) else body
    if isinstance(error, Mapping):
        return str(error.get("type") or ""), str(error.get("message") or error)
    return "", "" if error is None else str(error)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait as `Retry-After` tells, in its forms (seconds or a date); `None` without one."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name)
        seconds = None if value is None else _seconds(value)
        if seconds is not None and math.isfinite(seconds) and seconds >= 0:
            return min(seconds * unit, MAX_RETRY_AFTER)
    return None


def clipped(text: str, *, secret: str = "") -> str:
    """The text without the key and what a database cannot hold, within a bound."""
    if secret:
        text = text.replace(secret, "[key]")
    return readable(text)[:MESSAGE_CHARS]


def readable(text: str) -> str:
    """The text with lone surrogates and NUL replaced: neither JSON nor the database carries them (R3)."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")


def _kind_of_status(status: int, *, error_type: str, words: str) -> FailureKind:
    if status in (400, 402, 403, 429) and (error_type == "billing_error" or _speaks_of_quota(f"{error_type} {words}")):
        return FailureKind.QUOTA
    if status in BY_STATUS:
        return BY_STATUS[status]
    if status >= 500:
        return FailureKind.OVERLOADED if error_type == "overloaded_error" else FailureKind.SERVER
    return FailureKind.INVALID_REQUEST


def _speaks_of_quota(words: str) -> bool:
    lowered = words.lower()
    return any(phrase in lowered for phrase in QUOTA_WORDS)


def _seconds(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        parsed = email.utils.parsedate_tz(value)
    try:
        return None if parsed is None else max(0.0, email.utils.mktime_tz(parsed) - time.time())
    except (ValueError, OverflowError):
        return None
