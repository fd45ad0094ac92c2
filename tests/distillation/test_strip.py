"""A session as a strip: each message counts once, by the latest look at it."""

from __future__ import annotations

from distillation.admin import strip
from distillation.models import Cursor, DistillationPass, Quarantine


def a_pass(pk: int, start: int, end: int, outcome: str = "applied") -> DistillationPass:
    return DistillationPass(pk=pk, start=start, end=end, outcome=outcome)


def drawn(cursor: Cursor, passes: list[DistillationPass], *held: int) -> list[tuple[int, int, str]]:
    parts = strip.parts(cursor, passes, [Quarantine(seq=seq) for seq in held])
    assert abs(sum(part.share for part in parts) - 100) < 0.001
    return [(part.start, part.end, "waits" if part.waits else part.tone) for part in parts]


def test_d24_what_was_distilled_again_is_drawn_once() -> None:
    passes = [a_pass(1, 0, 10), a_pass(2, 4, 8, "empty"), a_pass(3, 4, 8, "failed")]

    assert drawn(Cursor(position=10, watermark=10), passes) == [(0, 4, "green"), (4, 8, "grey"), (8, 10, "green")]


def test_what_waits_is_quarantined_or_was_skipped_has_its_own_part() -> None:
    passes = [a_pass(1, 0, 2), a_pass(2, 6, 8)]

    assert drawn(Cursor(position=8, watermark=10), passes, 3) == [
        (0, 2, "green"),
        (2, 3, "red"),
        (3, 6, ""),
        (6, 8, "green"),
        (8, 10, "waits"),
    ]


def test_going_back_makes_what_was_distilled_wait_again() -> None:
    assert drawn(Cursor(position=2, watermark=6), [a_pass(1, 0, 6)]) == [(0, 2, "green"), (2, 6, "waits")]
