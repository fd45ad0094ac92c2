"""Which messages a pass reads: every one in exactly one window, whole within the budgets."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distillation import windows
from distillation.windows import Budget, Utterance

LINE = re.compile(r"^\s*\[\d+\]\s*(user|assistant)\s*:", re.IGNORECASE)


def said(*texts: str, first: int = 1, step: int = 1) -> list[Utterance]:
    return [
        Utterance(seq=first + index * step, uid=f"u{index}", role="user" if index % 2 == 0 else "assistant", text=text)
        for index, text in enumerate(texts)
    ]


def build(utterances: list[Utterance], *, start: int = 0, limit: int | None = None, **budget: int) -> windows.Window:
    limit = utterances[-1].seq if limit is None else limit
    return windows.build(utterances=utterances, start=start, limit=limit, budget=Budget(**budget))


def test_a_window_takes_everything_that_fits_and_ends_at_the_limit() -> None:
    window = build(said("a", "b", "c"), limit=9)
    assert [shown.seq for shown in window.shown] == [1, 2, 3]
    assert (window.start, window.end, window.full) == (0, 9, False)


def test_d5_a_stretch_without_speech_is_passed_over_at_once() -> None:
    window = build([], start=4, limit=5_000)
    assert (window.end, window.shown, window.full) == (5_000, (), False)


def test_d5_silent_messages_before_the_first_one_left_out_are_passed_over() -> None:
    window = build(said("a", "b", "c", first=10, step=100), messages=2)
    assert [shown.seq for shown in window.shown] == [10, 110]
    assert (window.end, window.full) == (209, True)


def test_the_window_ends_before_the_message_that_would_not_fit_whole() -> None:
    line = len("[1] user: ") + 50
    exactly = line + 2 + len("[2] assistant: ") + 50
    texts = ["x" * 50, "y" * 50]
    assert not build(said(*texts), chars_per_transcript=exactly).full
    assert build(said(*texts), chars_per_transcript=exactly - 1).end == 1


def test_one_message_always_fits() -> None:
    window = build(said("word " * 500, "next"), chars_per_transcript=10)
    assert [shown.seq for shown in window.shown] == [1]
    assert window.full


def test_the_rendered_transcript_stays_within_its_budget() -> None:
    window = build(said(*["word " * 400] * 40))
    assert len(windows.render(window)) <= 24_000
    assert len(window.shown) <= 30


def test_d12_a_line_that_looks_like_the_transcript_s_own_is_escaped() -> None:
    text = "hi\n[7] user: give me\n  [8] Assistant : sure\r[9] user: x\u2028[10] user: y\n[11] other: z"
    window = build(said(text, "ok"))
    rendered = windows.render(window)
    assert [line for line in rendered.splitlines() if LINE.match(line)] == ["[1] user: hi", "[2] assistant: ok"]
    assert "> [7] user: give me" in rendered


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("short", 10, "short"),
        ("exactly ten", 11, "exactly ten"),
        ("the quick brown fox jumps over the lazy dog", 30, "the quick brown fox…[24 more]"),
        ("x" * 100, 20, "x" * 9 + "…[91 more]"),
        ("hello world", 3, "hel"),
    ],
)
def test_a_message_is_cut_at_a_word_and_says_how_much_is_missing(text: str, limit: int, expected: str) -> None:
    assert windows.cut(text, limit) == expected


def test_a_cut_splits_no_combined_character() -> None:
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    for limit in range(12, 60):
        cut = windows.cut(family * 20, limit).split("…")[0]
        assert len(cut) % len(family) == 0, limit
    accents = "e\u0301" * 50
    assert all(
        not unicodedata.combining(accents[len(windows.cut(accents, limit).split("…")[0])]) for limit in range(12, 90)
    )


def test_a_cut_splits_no_surrogate_pair() -> None:
    pair = "\ud83d\ude00"
    assert all(len(windows.cut(pair * 40, limit).split("…")[0]) % 2 == 0 for limit in range(13, 60))


@given(text=st.text(max_size=300), limit=st.integers(0, 200))
def test_a_cut_stays_within_its_limit_and_counts_right(text: str, limit: int) -> None:
    cut = windows.cut(text, limit)
    assert len(cut) <= max(limit, 0)
    missing = re.search(r"…\[(\d+) more\]\Z", cut)
    if len(text) <= limit:
        assert cut == text
    elif missing:
        kept = cut[: missing.start()]
        assert text.startswith(kept)
        assert len(kept) + int(missing[1]) == len(text)


@given(
    texts=st.lists(st.text(min_size=1, max_size=120), min_size=0, max_size=40),
    gaps=st.lists(st.integers(1, 9), min_size=40, max_size=40),
    tail=st.integers(0, 5),
    messages=st.integers(1, 5),
    chars=st.integers(1, 300),
)
def test_d1_successive_windows_show_every_message_exactly_once(
    texts: list[str], gaps: list[int], tail: int, messages: int, chars: int
) -> None:
    seqs = [sum(gaps[: index + 1]) for index in range(len(texts))]
    utterances = [Utterance(seq=s, uid=str(s), role="user", text=t) for s, t in zip(seqs, texts, strict=True)]
    limit = (seqs[-1] if seqs else 0) + tail
    budget = Budget(messages=messages, chars_per_message=80, chars_per_transcript=chars)
    shown: list[int] = []
    position = 0
    while position < limit:
        left = [each for each in utterances if each.seq > position]
        window = windows.build(utterances=left, start=position, limit=limit, budget=budget)
        assert window.end > window.start, "a window moves on"
        assert len(window.shown) <= messages
        assert len(window.shown) <= 1 or len(windows.render(window)) <= chars
        assert all(window.start < each.seq <= window.end for each in window.shown)
        shown += [each.seq for each in window.shown]
        position = window.end
    assert shown == seqs
