"""The operators' pages of execution."""

from __future__ import annotations

from sessions_exec.admin import cluster, deliveries, executions, inputs, panel, recoveries, webhooks

__all__ = ["cluster", "deliveries", "executions", "inputs", "panel", "recoveries", "webhooks"]
