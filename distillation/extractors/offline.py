"""Reads a window without a model: whole sentences, chosen by their wording, word for word.

For people without a provider's key. It is deterministic and careful: it states nothing that was not said, keeps
no sentence that asks or plans or instructs its reader, and rather keeps nothing than something doubtful.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from agentmemory import likeness
from distillation import prompts, windows
from distillation.extractors import doubts, sentences, wording
from distillation.extractors.base import Extraction, ExtractionTask

MAX_CANDIDATES = 12
MAX_PER_MESSAGE = 4
"""A long report must not push out what was said elsewhere."""

MIN_CHARS, MAX_CHARS = 18, 400
MIN_WORDS = 4
MIN_WORDS_OF_OUTCOME = 6
"""Shorter ones ("Fixed the failing test.") say too little without their session."""
KEY_WORDS = 7
KEY_CHARS = 80

WEIGHT = {
    wording.Kind.PREFERENCE: 5,
    wording.Kind.DECISION: 5,
    wording.Kind.CONSTRAINT: 4,
    wording.Kind.OUTCOME: 3,
    wording.Kind.FACT: 3,
}
FIRST_PERSON = re.compile(r"\b(?:I|I'm|I've|I'd|I'll|my|mine|me)\b")
DONE_BY_AGENT = re.compile(r"^I(?:'ve| have)? ((?:\w+ly )?\w+(?:ed|t)) ")
FILLER = re.compile(
    r"^(?:(?:also|and|but|so|ok(?:ay)?|yes|right|well|perfect|great|sure|done|actually|btw|by the way|fyi|"
    r"note(?: that)?|for the record|one (?:more |last )?thing|summary|update|reminder)\b[,:!.]*\s+)+",
    re.IGNORECASE,
)
PLEASE = re.compile(r"^please,? ", re.IGNORECASE)
PRONOUNS = frozenset({"i", "you", "he", "she", "which"})
KEY_STOP = likeness.LITTLE_WORDS | PRONOUNS | frozenset({"so", "please", "also", "because", "than"})


@dataclass(frozen=True, kw_only=True)
class Found:
    """One sentence worth keeping."""

    kind: wording.Kind
    content: str
    statement: str
    """The bare sentence: what likeness and the key are made from."""
    quote: str
    seq: int
    role: str

    @property
    def weight(self) -> int:
        return WEIGHT[self.kind] * 2 + (self.role == "user")


class OfflineExtractor:
    """Chooses sentences; reaches no provider and costs no tokens."""

    name = "offline"

    def extract(self, task: ExtractionTask) -> Extraction:
        chosen = _chosen(_found(task.window))
        entries = [_entry(found, key) for found, key in _keyed(chosen, known=task.known)]
        return Extraction(text=json.dumps({"memories": entries}, ensure_ascii=False))


def _found(window: windows.Window) -> list[Found]:
    """What each message states, without what the user took back at once."""
    found: list[Found] = []
    since_prompt: list[Found] = []
    for shown in window.shown:
        if shown.role == "user":
            if not doubts.corrects(shown.original):
                found += since_prompt
            since_prompt = []
            found += _of_message(shown)
        else:
            since_prompt += _of_message(shown)
    return found + since_prompt


def _of_message(shown: windows.Shown) -> list[Found]:
    if doubts.planted(shown.original):
        return []
    best = sorted(_statements(shown), key=lambda each: -each.weight)[:MAX_PER_MESSAGE]
    return [each for each in _statements(shown) if each in best]


def _statements(shown: windows.Shown) -> Iterator[Found]:
    for sentence in sentences.of(shown.original):
        text = FILLER.sub("", sentence.text)
        if not MIN_CHARS <= len(text) <= MAX_CHARS or len(text.split()) < MIN_WORDS:
            continue
        kind = wording.kind(text, role=shown.role, listed=sentence.listed)
        if kind == wording.Kind.OUTCOME and len(text.split()) < MIN_WORDS_OF_OUTCOME:
            continue
        if kind is not None:
            yield Found(
                kind=kind,
                content=_self_contained(text, role=shown.role) + _dated(kind, shown),
                statement=PLEASE.sub("", text),
                quote=sentence.quote,
                seq=shown.seq,
                role=shown.role,
            )


def _self_contained(text: str, *, role: str) -> str:
    """The sentence, with who "I" is said where it says so."""
    text = PLEASE.sub("", text)
    done = DONE_BY_AGENT.match(text)
    if role == "assistant" and done:
        return _capital(text[done.start(1) :])
    if FIRST_PERSON.search(text):
        return f'The {"user" if role == "user" else "agent"} said: "{text}"'
    return _capital(text)


def _dated(kind: wording.Kind, shown: windows.Shown) -> str:
    """The day, where a later reader needs it."""
    if shown.occurred_at is None or kind not in (wording.Kind.OUTCOME, wording.Kind.DECISION):
        return ""
    return f" ({windows.day(shown.occurred_at)})"


def _chosen(found: Sequence[Found]) -> list[Found]:
    """At most twelve, the most telling ones, in the order they were said; of repeated ones the last."""
    distinct: list[Found] = []
    for each in reversed(found):
        if not any(likeness.near_duplicate(each.statement, later.statement) for later in distinct):
            distinct.append(each)
    distinct.reverse()
    best = sorted(range(len(distinct)), key=lambda index: (-distinct[index].weight, -index))[:MAX_CANDIDATES]
    return [distinct[index] for index in sorted(best)]


def _keyed(chosen: Iterable[Found], *, known: Sequence[prompts.Known]) -> Iterator[tuple[Found, str]]:
    """Each with its key: that of a known memory which says the same, else one made from its words."""
    taken: set[str] = set()
    for found in chosen:
        same = next((each for each in known if likeness.near_duplicate(each.content, found.content)), None)
        if same is not None:
            found, key = replace(found, content=same.content), same.key
        else:
            key = key_of(found.statement)
        if key in taken:
            key = f"{key}-{hashlib.sha256(found.statement.encode()).hexdigest()[:6]}"
        taken.add(key)
        yield found, key


def key_of(statement: str) -> str:
    """A kebab-case key from the statement's telling words; the same words give the same key."""
    words = [word for word in re.findall(r"\w+", statement.lower().replace("'", "")) if word not in KEY_STOP]
    key = "-".join(word.replace("_", "-").strip("-") for word in words[:KEY_WORDS])
    return key[:KEY_CHARS].strip("-") or hashlib.sha256(statement.encode()).hexdigest()[:12]


def _entry(found: Found, key: str) -> dict[str, object]:
    return {
        "key": key,
        "content": found.content,
        "tags": [found.kind.value],
        "sources": [found.seq],
        "quote": found.quote,
    }


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:] if text[:1].isalpha() and text.split()[0].islower() else text
