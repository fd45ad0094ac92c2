"""What can go wrong with leases and executions."""

from __future__ import annotations

from datetime import datetime


class SessionsExecError(Exception):
    """Base of everything this app raises on purpose."""

    permanent = False


class LeaseHeld(SessionsExecError):
    """A live lease stands; it is never replaced (S1). Where it is known, `holder` has it until `expires_at`."""

    def __init__(self, message: str, *, holder: str = "", expires_at: datetime | None = None) -> None:
        super().__init__(message)
        self.holder = holder
        self.expires_at = expires_at


class LeaseLost(SessionsExecError):
    """The lease that a write relies on has expired or was taken over: nothing was written."""


class InputConflict(SessionsExecError):
    """An input's id is taken by something else, or the input was settled already (S4)."""

    permanent = True


class Crowded(SessionsExecError):
    """As much waits already as may wait at once. Trying again later helps."""


class TaskFailed(SessionsExecError):
    """A task ended with an error, which its edge has logged. Names the kind of error and nothing of its text."""


class TaskStopped(SystemExit):
    """The worker is asked to stop in the midst of a task, which now gives back what it has begun.

    Not an `Exception`: nothing that catches errors on its way may take it for one.
    """
