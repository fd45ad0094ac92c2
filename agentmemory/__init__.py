"""Memories for AI agents: spaces, transcripts, memories, and how clients reach them."""

from __future__ import annotations

VERSION = "0.1.0"
