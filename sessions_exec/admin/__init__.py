"""The operators' pages of execution."""

from __future__ import annotations

from sessions_exec.admin import cluster, executions, inputs, panel, recoveries

__all__ = ["cluster", "executions", "inputs", "panel", "recoveries"]
