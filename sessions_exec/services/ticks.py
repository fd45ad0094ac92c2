"""When each thing that happens again and again was last done, over all workers together."""

from __future__ import annotations

from datetime import timedelta

from sessions_exec.leases import ClockTimestamp
from sessions_exec.models import Tick

# Workers look a little early or late; a turn must not be lost to that.
TOLERANCE = 0.8


def claim(name: str, *, every: float, tolerance: float = TOLERANCE) -> bool:
    """Take the turn that comes every `every` seconds; of several workers one gets it."""
    earliest = ClockTimestamp() - timedelta(seconds=every * tolerance)
    taken = Tick.objects.filter(name=name, at__lte=earliest).update(at=ClockTimestamp())
    if taken:
        return True
    _, first = Tick.objects.get_or_create(name=name, defaults={"at": ClockTimestamp()})
    return first


def note(name: str, outcome: object) -> None:
    """Write down that a thing was done just now, and what came of it."""
    values = {"at": ClockTimestamp(), "outcome": "" if outcome is None else str(outcome)[:500]}
    Tick.objects.update_or_create(name=name, defaults=values)
