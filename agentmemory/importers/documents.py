"""Files that are one JSON document as a whole."""

from __future__ import annotations

import codecs
import json
import re
from pathlib import Path
from typing import NoReturn

from agentmemory.importers import base

MAX_DOCUMENT = 128 * 1024 * 1024
"""Bytes. A longer file is not read."""

_BEGINS = re.compile(rb"\s*[\[{]")


def read(path: Path) -> object:
    """What the file holds. Bytes that are no UTF-8 become U+FFFD. Raises `UnreadableTranscript`, `OSError`."""
    with path.open("rb") as file:
        content = file.read(MAX_DOCUMENT + 1)
    if len(content) > MAX_DOCUMENT:
        raise base.UnreadableTranscript(f"The file is longer than {MAX_DOCUMENT // 1024**2} MiB.")
    text = content.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")
    try:
        value: object = json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise base.UnreadableTranscript("The file is nested too deeply.") from error
    except ValueError as error:
        raise base.UnreadableTranscript("The file is not JSON, or is cut off.") from error
    return value


def peek(path: Path) -> object:
    """What the file holds, or None where it is no document. Raises `OSError`."""
    with path.open("rb") as file:
        beginning = file.read(1024).removeprefix(codecs.BOM_UTF8)
    if not _BEGINS.match(beginning):
        return None
    try:
        return read(path)
    except base.UnreadableTranscript:
        return None


def _refuse(constant: str) -> NoReturn:
    """NaN and Infinity are no JSON, and no database takes them for it."""
    raise ValueError(constant)
