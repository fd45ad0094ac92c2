"""What follows for executions and inputs once the facts are read: pure, with neither clock nor database.

Who holds a session *now* is no matter of these rules: the database alone judges that, in the statement that relies on
it and under its lock (`leases`, `querysets`). What is decided here, is decided on rows that such a lock holds still.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

STEP, IDLE = BOUNDARIES = ("step", "idle")


class Waiting(NamedTuple):
    """An input that waits, by its key; keys grow with the order of admission."""

    key: int
    kind: str
    delivery: str


def due(waiting: Sequence[Waiting], *, boundary: str, most: int) -> list[int]:
    """The keys of what is promoted at a boundary, in order, of what waits in the order of admission (S5).

    What a recovery left comes first, whatever was admitted before it (S7); then up to `most` that steer. Where there
    is nothing of it and the session would go idle: one that was queued.
    """
    continuation = [one.key for one in waiting if one.kind == "continuation"][:1]
    steers = [one.key for one in waiting if one.kind == "prompt" and one.delivery == "steer"][:most]
    if continuation or steers or boundary == STEP:
        return continuation + steers
    return [one.key for one in waiting][:1]


def is_retry(*, kind: str, admitted_as: str, delivery: str, same_prompt: bool) -> bool:
    """Whether an admission under a known id is the exact retry of the first one (S4). What it was flipped to since
    does not count."""
    return kind == "prompt" and admitted_as == delivery and same_prompt


def wish_after_flip(*, wanted: bool, delivery: str) -> bool:
    """Whoever lets an input steer wants it now; letting it queue takes no wish back."""
    return wanted or delivery == "steer"


def wish_for_continuation(*, interrupted: bool) -> bool:
    """Who interrupted an execution does not want it to go on by itself (S6)."""
    return not interrupted


def needs_nothing(*, phase: str, own: int | None, newest: int | None) -> bool:
    """Whether an expired execution ended at a boundary, or the conversation has gone on without it (S7, S8).

    `own` and `newest` are the places of the newest answer of this execution, and of the session.
    """
    overtaken = own is not None and newest is not None and newest > own
    return phase == "safe" or overtaken


def gives_up(*, earlier: int, most: int) -> bool:
    """Whether a recovery ends the turn, of which `earlier` ones there were already (S9)."""
    return earlier + 1 >= most
