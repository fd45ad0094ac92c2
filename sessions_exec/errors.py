"""What can go wrong with leases and executions."""

from __future__ import annotations


class SessionsExecError(Exception):
    """Base of everything this app raises on purpose."""

    permanent = False


class LeaseHeld(SessionsExecError):
    """A live lease stands; it is never replaced (S1)."""


class LeaseLost(SessionsExecError):
    """The lease that a write relies on has expired or was taken over: nothing was written."""
