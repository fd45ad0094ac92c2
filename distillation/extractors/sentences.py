"""From a message in Markdown to its sentences (pure): code, tables, headings and quoted passages left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_CHARS = 20_000
"""Of one message, what is read (A4)."""

FENCE = re.compile(r"^\s*(```|~~~)")
ITEM = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s+(?:\[[ xX]\]\s+)?")
LEFT_OUT = re.compile(r"^\s*(?:#{1,6}\s|\||>|-{3,}\s*$|={3,}\s*$|\*{3,}\s*$|diff |@@ |<[/!a-zA-Z])")
ABBREVIATION = r"(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bvs\.)(?<!\bcf\.)(?<!\betc\.)(?<!\bincl\.)(?<!\bapprox\.)(?<!\bresp\.)"
# Behind a full stop comes a capital; behind that of a word of three letters and more, whatever people typed.
END = re.compile(
    rf"""(?<=[.!?]){ABBREVIATION}["')*”]*\s+(?=["'(*`“]*[A-Z0-9@])|(?<=[a-z0-9)`]{{3}}[.!?]){ABBREVIATION}\s+(?=[a-z])"""
)
LINK = re.compile(r"\[([^\]\[]{1,200})\]\([^()\s]{1,500}\)")
EMPHASIS = re.compile(r"\*\*|__|(?<!\w)[*_](?=\w)|(?<=[\w.,:!?])[*_](?!\w)")
LEADING = re.compile(r"^[^\w`\"'“(@./~$-]+")


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """`quote` stands word for word in the message; `text` is the same without Markdown's marks."""

    text: str
    quote: str
    listed: bool
    """Whether it is an item of a list: there, options and plans are more common than facts."""


def of(message: str) -> Iterator[Sentence]:
    """The sentences of a message, in order."""
    for paragraph, listed in _paragraphs(message[:MAX_CHARS]):
        for part in END.split(paragraph):
            text = plain(part)
            if text:
                yield Sentence(text=text, quote=part.strip(), listed=listed)


def plain(markdown: str) -> str:
    """The words without emphasis, links' addresses and leading marks; `code` keeps its backticks."""
    text = EMPHASIS.sub("", LINK.sub(r"\1", markdown))
    return LEADING.sub("", text).strip()


def _paragraphs(message: str) -> Iterator[tuple[str, bool]]:
    """Paragraphs and list items, each on one line, and whether it is an item."""
    lines: list[str] = []
    listed = False
    for line in _prose(message):
        item = ITEM.match(line)
        if lines and (item or not line.strip()):
            yield " ".join(lines), listed
            lines = []
        if item:
            listed = True
            line = line[item.end() :]
        elif not lines:
            listed = False
        if line.strip():
            lines.append(" ".join(line.split()))
    if lines:
        yield " ".join(lines), listed


def _prose(message: str) -> Iterator[str]:
    """The lines that are prose; a blank one stands for what is left out."""
    fenced = False
    for line in message.splitlines():
        if FENCE.match(line):
            fenced = not fenced
            yield ""
        elif fenced or LEFT_OUT.match(line):
            yield ""
        else:
            yield line
