"""What can go wrong with leases and executions."""

from __future__ import annotations


class SessionsExecError(Exception):
    """Base of everything this app raises on purpose."""

    permanent = False


class LeaseHeld(SessionsExecError):
    """A live lease stands; it is never replaced (S1)."""


class LeaseLost(SessionsExecError):
    """The lease that a write relies on has expired or was taken over: nothing was written."""


class TaskFailed(SessionsExecError):
    """A task ended with an error, which its edge has logged. Names the kind of error and nothing of its text."""


class TaskStopped(SystemExit):
    """The worker is asked to stop in the midst of a task, which now gives back what it has begun.

    Not an `Exception`: nothing that catches errors on its way may take it for one.
    """
