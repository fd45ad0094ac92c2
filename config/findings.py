"""What an examination of an installation finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of the report. A note is worth knowing and nothing to repair."""

    level: Literal["ok", "note", "wrong"]
    about: str
    line: str
    advice: str = ""
