"""What can go wrong in distillation."""

from __future__ import annotations

from datetime import datetime


class DistillationError(Exception):
    """Base of everything this app raises on purpose."""

    permanent = False


class BackingOff(DistillationError):
    """A pass was asked for while the cursor waits after a failure (D7)."""

    def __init__(self, until: datetime) -> None:
        super().__init__(f"Distillation of this session waits until {until:%Y-%m-%d %H:%M:%S} UTC after a failure.")
        self.until = until


class NothingWritten(DistillationError):
    """Every candidate of an answer that held some was refused (D9)."""
