"""What can go wrong, as few kinds as callers can tell apart."""

from __future__ import annotations


class AgentMemoryError(Exception):
    """Base of everything this app raises on purpose. The message is fit for the caller's eyes."""

    permanent = True


class NotFound(AgentMemoryError):
    """It is not there, or the caller may not see it: the two are never told apart (M4)."""


class NotAllowed(AgentMemoryError):
    """This kind of caller may never do this."""


class Invalid(AgentMemoryError):
    """A value breaks a rule. `field` names it."""

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class HoldsSecret(Invalid):
    """A memory write holds secrets of these kinds (D13)."""

    def __init__(self, kinds: tuple[str, ...]) -> None:
        super().__init__(f"The content holds a secret ({', '.join(kinds)}).", field="content")
        self.kinds = kinds


class VersionMoved(AgentMemoryError):
    """The memory is no longer at the version that the caller expects."""


class UidConflict(AgentMemoryError):
    """A message's uid is taken by other content in its session (R2)."""

    def __init__(self, uid: str) -> None:
        super().__init__(f"The message {uid!r} is here already, with other content.")
        self.uid = uid


class TooManyCalls(AgentMemoryError):
    """The token has made its calls of this minute. `retry_after`: seconds until the next."""

    permanent = False

    def __init__(self, retry_after: int) -> None:
        super().__init__("This token has made its calls of this minute.")
        self.retry_after = retry_after


class TooManyTries(AgentMemoryError):
    """Somebody has tried to sign in too often. `retry_after`: seconds until the next try."""

    permanent = False

    def __init__(self, retry_after: int) -> None:
        super().__init__("There were too many tries to sign in.")
        self.retry_after = retry_after
