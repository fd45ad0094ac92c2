"""Which request is being answered: one id in its answer, in the problem document, and in every line of the log."""

from __future__ import annotations

import re
import uuid
from contextvars import ContextVar

HEADER = "X-Request-ID"
# What others may choose: nothing that could be markup, a second header, or a line of its own in a log.
_WELL_FORMED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{7,63}", re.ASCII)
_current: ContextVar[str] = ContextVar("request_id", default="")


def current() -> str:
    """The id of the request that is being answered here; empty outside of one."""
    return _current.get()


def begin(proposed: str | None) -> str:
    """Answer a request from here on, under the id that came with it if that is well-formed, else under a new one."""
    chosen = proposed if proposed and _WELL_FORMED.fullmatch(proposed) else uuid.uuid4().hex
    _current.set(chosen)
    return chosen
