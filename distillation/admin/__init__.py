"""The operators' pages of distillation."""

from __future__ import annotations

from distillation.admin import cursors, passes, quarantines

__all__ = ["cursors", "passes", "quarantines"]
