"""A session as a strip: which pass looked at which stretch last, what is quarantined, what was not looked at yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentmemory.console import links
from distillation.models import Cursor, DistillationPass, Quarantine

_TONES = {DistillationPass.Outcome.APPLIED.value: "green", DistillationPass.Outcome.EMPTY.value: "grey"}


@dataclass(frozen=True, kw_only=True)
class Part:
    """The stretch (start, end] of a strip, where it begins and its share of the whole, both in percent."""

    start: int
    end: int
    title: str
    tone: str = ""
    url: str = ""
    waits: bool = False
    offset: float = 0.0
    share: float = 0.0


def parts(cursor: Cursor, passes: Sequence[DistillationPass], held: Sequence[Quarantine]) -> list[Part]:
    """The strip from the first message to the watermark. Parts do not overlap: the latest look at a message counts."""
    found: list[Part] = []
    for part in _looks(cursor, passes, held):
        found += _uncovered(part, found)
    whole = max(cursor.watermark, 1)
    sized = [_sized(part, 100 / whole) for part in found]
    return sorted(sized, key=lambda part: part.start)


def _sized(part: Part, percent: float) -> Part:
    return Part(**{**vars(part), "offset": part.start * percent, "share": (part.end - part.start) * percent})


def _looks(cursor: Cursor, passes: Sequence[DistillationPass], held: Sequence[Quarantine]) -> Iterator[Part]:
    """What is known of each stretch, the latest word first."""
    if cursor.lag:
        title = f"messages {cursor.position + 1} to {cursor.watermark}: not yet"
        yield Part(start=cursor.position, end=cursor.watermark, title=title, waits=True)
    for row in held:
        yield Part(start=row.seq - 1, end=row.seq, title=f"message {row.seq}: quarantined", tone="red")
    # A failed attempt moved nothing: it is in the list below, and its stretch is drawn by the pass that did.
    for each in sorted(passes, key=lambda row: -row.pk):
        if each.outcome in _TONES and each.end > each.start:
            title = f"messages {each.start + 1} to {each.end}: {each.outcome}"
            tone = _TONES[each.outcome]
            yield Part(start=each.start, end=each.end, title=title, tone=tone, url=links.a_pass(each.pk))
    yield Part(start=0, end=cursor.watermark, title="skipped, or nothing was said", tone="")


def _uncovered(part: Part, over: Sequence[Part]) -> list[Part]:
    """What is left of a part beside those that lie over it."""
    left, at = [], part.start
    for other in sorted(over, key=lambda each: each.start):
        if other.end <= at or other.start >= part.end:
            continue
        if other.start > at:
            left.append(Part(**{**vars(part), "start": at, "end": other.start}))
        at = max(at, other.end)
    if at < part.end:
        left.append(Part(**{**vars(part), "start": at}))
    return left
