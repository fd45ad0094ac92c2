"""Names that files give, where they can be used, and names made from content where they give none."""

from __future__ import annotations

import hashlib
import json
import re

_SESSION = re.compile(r"[A-Za-z0-9._:@-]{1,200}")
# Shorter than what the database takes: the name of a continuation is made by adding to it.
_UID = re.compile(r"[!-~]{1,180}")


def session(value: object) -> str:
    """`value` where it can name a session, else nothing."""
    return value if isinstance(value, str) and _SESSION.fullmatch(value) else ""


def uid(value: object) -> str:
    """`value` where it can name a message, else nothing."""
    return value if isinstance(value, str) and _UID.fullmatch(value) else ""


def made(prefix: str, *told_by: object) -> str:
    """A name made from what tells one thing from the others, the same each time."""
    return f"{prefix}-{hashlib.sha256(json.dumps(told_by).encode()).hexdigest()[:32]}"
