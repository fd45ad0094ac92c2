"""What rows are called to somebody who may not read what is private: a key and a title are made of what was said."""

from __future__ import annotations

from typing import Any

from agentmemory.models import Memory, Session


def readable(memory: Memory, *, private: bool) -> bool:
    """Whether one who may read what is private, or may not, may read this memory."""
    return private or memory.owner_id is None


def memory(row: Memory, *, private: bool) -> str:
    """Its key; to one who may not read it, whose it is and how its id begins."""
    if readable(row, private=private):
        return row.key
    return hidden(row.pk, row.owner.handle if row.owner else "")


def hidden(pk: Any, handle: str) -> str:
    """A memory of an agent without its key."""
    return f"a private memory of {handle} ({str(pk)[:8]})"


def wait(line: str, *, private: bool) -> str:
    """Why something waits; without what a provider has said when it was paused, which may quote what it was sent."""
    head, paused, _ = line.partition(" paused")
    return line if private else head + paused


def title(session: Session, *, private: bool) -> str:
    """A session's title, which agents make of what was said; nothing to one who may not read that."""
    return session.title if private else ""
