"""How what the runner of this service writes into a transcript is known again."""

from __future__ import annotations

OWN = "run."
"""How the uids of its messages begin."""

SUMMARY = "compaction_summary"
"""The subtype of what a compaction leaves: a summary, and where what is shown beside it begins (S11)."""
