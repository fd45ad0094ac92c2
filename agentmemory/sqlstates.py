"""What the database says of an error by number: the SQLSTATEs that are told apart, and how one is read."""

from __future__ import annotations

from django.db import OperationalError

CANCELLED = "57014"
DISK_FULL = "53100"
DISK_FAILS = "58030"
READ_ONLY = "25006"
"""A write where the database takes reads alone: a standby, or one that was told to."""


def of(error: BaseException) -> str:
    """The SQLSTATE that a database's error came with; blank where it came with none."""
    return str(getattr(error.__cause__, "sqlstate", None) or "")


def passes(error: BaseException) -> bool:
    """Whether it is the database that does not take it now, and may a little later: nothing is wrong here."""
    return isinstance(error, OperationalError) or of(error) == READ_ONLY
