"""The operators' pages of distillation."""

from __future__ import annotations

from distillation.admin import agents, cursors, messages, passes, providers, quarantines

__all__ = ["agents", "cursors", "messages", "passes", "providers", "quarantines"]
