"""What the database says of an error by number: the SQLSTATEs that are told apart, and how one is read."""

from __future__ import annotations

CANCELLED = "57014"
DISK_FULL = "53100"
DISK_FAILS = "58030"
READ_ONLY = "25006"
"""A write where the database takes reads alone: a standby, or one that was told to."""


def of(error: BaseException) -> str:
    """The SQLSTATE that a database's error came with; blank where it came with none."""
    return str(getattr(error.__cause__, "sqlstate", None) or "")
