"""Which messages one pass reads, and how they are shown (pure).

A window is the half-open stretch (start, end] of a session's numbers. Windows of successive passes touch and
never overlap, so that every message is looked at in exactly one of them (D1, D2).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

ELLIPSIS = "…"
SEPARATOR = "\n\n"
LINE_START = re.compile(r"^(?=[^\S\n]*\[\d+\][^\S\n]*(?:user|assistant)[^\S\n]*:)", re.MULTILINE | re.IGNORECASE)
"""Where a line begins like one of the transcript's own."""
ODD_LINE_ENDS = re.compile("\r\n|[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
JOINERS = frozenset({"\u200c", "\u200d", "\ufe0e", "\ufe0f"})


@dataclass(frozen=True, kw_only=True)
class Utterance:
    """One message that says something (D4), with its visible text."""

    seq: int
    uid: str
    role: str
    """`user` or `assistant`."""
    text: str
    occurred_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What one pass may show: messages, characters of each, characters of the transcript."""

    messages: int = 30
    chars_per_message: int = 800
    chars_per_transcript: int = 24_000


@dataclass(frozen=True, kw_only=True)
class Shown:
    """One message as it is shown: `text` is cut to the budget, `original` is what was said."""

    seq: int
    uid: str
    role: str
    text: str
    original: str
    occurred_at: datetime | None = None

    @property
    def line(self) -> str:
        """The message as it stands in a request; no line within it looks like the start of another."""
        return f"[{self.seq}] {self.role}: {escaped(self.text)}"


@dataclass(frozen=True, kw_only=True)
class Window:
    """The stretch (start, end] and what of it is shown. `full`: something was left for the next window."""

    start: int
    end: int
    shown: tuple[Shown, ...]
    full: bool

    @property
    def seqs(self) -> frozenset[int]:
        """The numbers that a candidate may cite (D10)."""
        return frozenset(shown.seq for shown in self.shown)


def build(*, utterances: Iterable[Utterance], start: int, limit: int, budget: Budget) -> Window:
    """The next window after `start`, within `limit` (the watermark).

    `utterances` are the speech of (start, limit] in order. The window ends before the first that would not fit
    whole after its own cut; one always fits. Numbers without speech are passed over free of charge, however
    many (D5): the end is the number before the first message left out, or `limit`.
    """
    shown: list[Shown] = []
    used = 0
    for utterance in utterances:
        candidate = _show(utterance, budget=budget)
        cost = len(candidate.line) + (len(SEPARATOR) if shown else 0)
        over = len(shown) >= budget.messages or used + cost > budget.chars_per_transcript
        if shown and over:
            return Window(start=start, end=utterance.seq - 1, shown=tuple(shown), full=True)
        shown.append(candidate)
        used += cost
    return Window(start=start, end=limit, shown=tuple(shown), full=False)


def render(window: Window) -> str:
    """The transcript as it is shown: `[SEQ] role: text`, messages apart by a blank line."""
    return SEPARATOR.join(shown.line for shown in window.shown)


def escaped(text: str) -> str:
    """The text with line ends made plain, and `> ` before lines that look like those of a transcript."""
    return LINE_START.sub("> ", ODD_LINE_ENDS.sub("\n", text))


def cut(text: str, limit: int) -> str:
    """The text within `limit` characters: whole words, an ellipsis, and how many characters are missing.

    A limit too small for the mark that tells so gives as much of the text as fits.
    """
    if len(text) <= limit:
        return text
    # The count's own digits take room: the mark for the whole length is the longest there can be.
    room = limit - len(_mark(len(text)))
    if room <= 0:
        return text[: _boundary(text, limit)]
    kept = text[: _word_boundary(text, _boundary(text, room))].rstrip()
    return kept + _mark(len(text) - len(kept))


def day(moment: datetime) -> str:
    """The date in UTC, `YYYY-MM-DD`."""
    return moment.astimezone(UTC).date().isoformat()


def _show(utterance: Utterance, *, budget: Budget) -> Shown:
    return Shown(
        seq=utterance.seq,
        uid=utterance.uid,
        role=utterance.role,
        text=cut(utterance.text, budget.chars_per_message),
        original=utterance.text,
        occurred_at=utterance.occurred_at,
    )


def _mark(missing: int) -> str:
    return f"{ELLIPSIS}[{missing} more]"


def _word_boundary(text: str, at: int) -> int:
    """The last end of a word at or before `at`; `at` itself where the word is longer than half of what fits."""
    if at == 0 or text[at].isspace() or text[at - 1].isspace():
        return at
    spaces = [found.start() for found in re.finditer(r"\s", text[:at])]
    return spaces[-1] if spaces and spaces[-1] > at // 2 else at


def _boundary(text: str, at: int) -> int:
    """The last place at or before `at` that splits no character from what combines with it."""
    place = at
    while 0 < place < len(text) and at - place < 32 and _clings(text, place):
        place -= 1
    return at if 0 < place < len(text) and _clings(text, place) else place


def _clings(text: str, at: int) -> bool:
    after, before = text[at], text[at - 1]
    return (
        unicodedata.combining(after) != 0
        or after in JOINERS
        or before == "\u200d"
        or "\U0001f3fb" <= after <= "\U0001f3ff"
        or ("\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff")
    )
