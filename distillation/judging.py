"""Which candidates of an answer may be written, and why the others may not (D9, D10, D13). Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentmemory import likeness
from distillation import answers, windows


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Most candidates of one answer, and the sizes of each."""

    candidates: int = 12
    chars_per_candidate: int = 2_000
    chars_per_key: int = 200
    tags: int = 50
    chars_per_tag: int = 50
    chars_per_quote: int = 1_000


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One candidate fit to be written; `sources` are numbers of the window's messages, rising."""

    key: str
    content: str
    tags: tuple[str, ...]
    sources: tuple[int, ...]
    quote: str
    quote_verified: bool


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """One candidate that is not written, with the reason for the pass's record."""

    index: int
    key: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Judged:
    """An answer's candidates, told apart, each group in the order of the answer."""

    accepted: tuple[Candidate, ...]
    refused: tuple[Refusal, ...]


def judge(
    candidates: Sequence[answers.RawCandidate],
    *,
    window: windows.Window,
    limits: Limits,
    secret_kinds: Callable[[str], Sequence[str]],
) -> Judged:
    """Which candidates may be written. `secret_kinds` names the kinds of secrets in a text (D13)."""
    refused: list[Refusal] = []
    accepted: list[tuple[int, Candidate]] = []
    for raw in candidates:
        reason = _problem(raw, window=window, limits=limits, secret_kinds=secret_kinds)
        if reason or raw.entry is None:
            refused.append(Refusal(index=raw.index, key=raw.key, reason=reason))
        else:
            accepted.append((raw.index, _candidate(raw.entry, window=window)))
    kept = _without_repeats(accepted, refused)
    refused.sort(key=lambda refusal: refusal.index)
    return Judged(accepted=tuple(kept), refused=tuple(refused))


def _problem(
    raw: answers.RawCandidate,
    *,
    window: windows.Window,
    limits: Limits,
    secret_kinds: Callable[[str], Sequence[str]],
) -> str:
    """Why a candidate is refused; empty if it is not."""
    if raw.index >= limits.candidates:
        return f"over the limit of {limits.candidates} candidates"
    if raw.entry is None:
        return raw.problem
    entry = raw.entry
    texts = [entry.key, entry.content, entry.quote, *entry.tags]
    if any(answers.UNSTORABLE.search(text) for text in texts):
        return "holds NUL or a lone surrogate"
    reason = _key_problem(entry, limits) or _content_problem(entry, limits) or _source_problem(entry, window)
    if reason:
        return reason
    kinds = sorted({kind for text in texts for kind in secret_kinds(text)})
    return f"holds a secret: {', '.join(kinds)}" if kinds else ""


def _key_problem(entry: answers.Entry, limits: Limits) -> str:
    key = entry.key.strip()
    if not key:
        return "the key is blank"
    if len(key) > limits.chars_per_key:
        return f"the key is longer than {limits.chars_per_key} characters"
    if not key.isprintable():
        return "the key holds characters that cannot be printed"
    if key.casefold().startswith("distilled:"):
        return "the key begins with the reserved distilled:"
    if key.casefold() == answers.EXAMPLE_KEY:
        return "the prompt's own example"
    return ""


def _content_problem(entry: answers.Entry, limits: Limits) -> str:
    content = entry.content.strip()
    if not content:
        return "the content is blank"
    if len(content) > limits.chars_per_candidate:
        return f"the content is longer than {limits.chars_per_candidate} characters"
    if content.casefold() == answers.EXAMPLE_CONTENT.casefold():
        return "the prompt's own example"
    if len(entry.quote) > limits.chars_per_quote:
        return f"the quote is longer than {limits.chars_per_quote} characters"
    tags = _tags(entry)
    if len(tags) > limits.tags or any(len(tag) > limits.chars_per_tag for tag in tags):
        return f"more than {limits.tags} tags, or a tag longer than {limits.chars_per_tag} characters"
    return ""


def _source_problem(entry: answers.Entry, window: windows.Window) -> str:
    if not entry.sources:
        return "cites no message"
    foreign = sorted(set(entry.sources) - window.seqs)
    if foreign:
        numbers = ", ".join(str(number)[:20] for number in foreign[:5])
        return f"cites messages that are not in the window: {numbers}"
    return ""


def _candidate(entry: answers.Entry, *, window: windows.Window) -> Candidate:
    sources = tuple(sorted(set(entry.sources)))
    quote = " ".join(entry.quote.split())
    return Candidate(
        key=entry.key.strip(),
        content=entry.content.strip(),
        tags=_tags(entry),
        sources=sources,
        quote=quote,
        quote_verified=bool(quote) and occurs(quote, window=window, sources=sources),
    )


def _tags(entry: answers.Entry) -> tuple[str, ...]:
    return tuple(dict.fromkeys(tag.strip() for tag in entry.tags if tag.strip()))


def occurs(quote: str, *, window: windows.Window, sources: tuple[int, ...]) -> bool:
    """Whether the words stand in the full text of one of these messages; white space counts as one space (D10)."""
    return any(quote in " ".join(shown.original.split()) for shown in window.shown if shown.seq in sources)


def _without_repeats(accepted: list[tuple[int, Candidate]], refused: list[Refusal]) -> list[Candidate]:
    """Of candidates that repeat each other the last one; the others are added to `refused`."""
    kept: list[Candidate] = []
    for index, candidate in reversed(accepted):
        later = next((each for each in kept if _repeats(candidate, each)), None)
        if later is None:
            kept.append(candidate)
        else:
            reason = f"a later candidate of this answer repeats it: {later.key}"
            refused.append(Refusal(index=index, key=candidate.key, reason=reason))
    return kept[::-1]


def _repeats(candidate: Candidate, later: Candidate) -> bool:
    return candidate.key == later.key or likeness.near_duplicate(candidate.content, later.content)
