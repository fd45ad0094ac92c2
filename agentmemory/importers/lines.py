"""JSON Lines as they are found: damaged, cut off, huge, with marks of other systems. No line stops the rest."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn

from agentmemory.importers import base

MAX_LINE = 32 * 1024 * 1024
"""Bytes. A longer line is passed over without being held."""

Object = dict[str, object]


def read(path: Path) -> Iterator[tuple[int, Object | base.Skipped]]:
    """Each line that is not blank, with its number from 1: the object on it, or why there is none.

    Lines end with LF or CRLF, or with the file. Bytes that are no UTF-8 become U+FFFD. Raises `OSError`.
    """
    with path.open("rb") as file:
        for number, line in _split(file):
            if isinstance(line, base.Skipped):
                yield number, line
            elif line.strip():
                yield number, _parse(number, line)


def _split(file: BinaryIO) -> Iterator[tuple[int, bytes | base.Skipped]]:
    number = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if len(line) > MAX_LINE:
            while line and not line.endswith(b"\n"):
                line = file.readline(MAX_LINE)
            yield number, base.Skipped(line=number, reason=f"longer than {MAX_LINE // 1024**2} MiB")
        else:
            yield number, line


def _parse(number: int, line: bytes) -> Object | base.Skipped:
    try:
        value = json.loads(line.decode("utf-8", "replace"), parse_constant=_refuse)
    except RecursionError:
        return base.Skipped(line=number, reason="nested too deeply")
    except ValueError:
        ended = line.endswith(b"\n")
        return base.Skipped(line=number, reason="not JSON" if ended else "not JSON: the file ends within it")
    if isinstance(value, dict):
        return value
    return base.Skipped(line=number, reason="not a JSON object")


def _refuse(constant: str) -> NoReturn:
    """NaN and Infinity are no JSON, and no database takes them for it."""
    raise ValueError(constant)
