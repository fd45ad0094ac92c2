"""The table that an import prints: what became of each file, and why a line was not used."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from agentmemory.importers import base
from agentmemory.services import importing

_HEAD = ("File", "Session", "New", "Known", "Skipped")
_NUMBERS = frozenset({2, 3})
_LINES_NAMED = 10


def lines(reports: Sequence[importing.FileReport]) -> Iterator[str]:
    """The table, line by line, and a line of totals below it. A folder that all files share is named once."""
    folder = _shared_folder([report.file for report in reports])
    if folder:
        yield f"In {_printable(folder)}:"
    rows = [_HEAD, *itertools.chain.from_iterable(_rows(report, folder) for report in reports)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD) - 1)]
    for row in rows:
        yield _line(row, widths)
    yield ""
    yield _totals(reports)


def _shared_folder(paths: Sequence[Path]) -> str:
    """The folder of all `paths`; empty where there is none, or a single file names its own well enough."""
    try:
        return os.path.commonpath([path.parent for path in paths]) if len(set(paths)) > 1 else ""
    except ValueError:
        return ""


def _rows(report: importing.FileReport, folder: str) -> Iterator[Sequence[str]]:
    """One row, and one more for each further reason."""
    reasons = [f"error: {report.error}"] if report.error else []
    reasons += _reasons(report.skipped)
    first = reasons[0] if reasons else "-"
    yield _shown(report.file, folder), report.session or "-", str(report.new), str(report.known), first
    for reason in reasons[1:]:
        yield "", "", "", "", reason


def _reasons(skipped: Iterable[base.Skipped]) -> list[str]:
    """Each reason once, with the lines that it holds for."""
    found: dict[str, list[int]] = {}
    for entry in skipped:
        found.setdefault(entry.reason, []).append(entry.line)
    return [_reason(reason, [number for number in numbers if number]) for reason, numbers in found.items()]


def _reason(reason: str, numbers: Sequence[int]) -> str:
    if not numbers:
        return _printable(reason)
    named = ", ".join(str(number) for number in numbers[:_LINES_NAMED])
    more = f" and {len(numbers) - _LINES_NAMED} more" if len(numbers) > _LINES_NAMED else ""
    return f"line{'s' if len(numbers) > 1 else ''} {named}{more}: {_printable(reason)}"


def _shown(path: Path, folder: str) -> str:
    return _printable(str(path.relative_to(folder) if folder else path))


def _printable(text: str) -> str:
    """File names may hold anything, also what moves a terminal's cursor or cannot be encoded."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        cell.rjust(width) if column in _NUMBERS else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=False))
    ]
    return "  ".join([*cells, row[-1]]).rstrip()


def _totals(reports: Sequence[importing.FileReport]) -> str:
    sessions = len({report.session for report in reports if report.session})
    new, known = sum(report.new for report in reports), sum(report.known for report in reports)
    skipped = sum(len(report.skipped) for report in reports)
    plural = "" if sessions == 1 else "s"
    return f"{sessions} session{plural}: {new} messages new, {known} already known, {skipped} skipped entries."
