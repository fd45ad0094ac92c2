"""The keyed digest by which a repeated message is told from another one under the same uid (R2)."""

from __future__ import annotations

import hashlib
import hmac
import json

from agentmemory import errors


def content_digest(*, key: bytes, content: object) -> str:
    """HMAC-SHA256, in hex, of `content` as it was received, before anything is redacted or cleaned.

    It is keyed, since it outlives secrets that were redacted: without `key`, nobody can find out by trying whether
    a guessed secret was there. Two contents are the same when their JSON is, whatever the order of keys and the
    blanks. Lone surrogates count like any other character (they are written as escapes). Raises `errors.Invalid`
    for what is not JSON: NaN, infinities, other types, and nesting without end.
    """
    try:
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise errors.Invalid("The content is not JSON.", field="content") from error
    return hmac.new(key, canonical.encode("ascii"), hashlib.sha256).hexdigest()
