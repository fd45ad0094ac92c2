"""What the runner asks a model through. Whoever knows providers, budgets and pauses gives it one."""

from __future__ import annotations

import threading
from typing import Protocol

from sessions_exec.llm.messages import Conversation, ConversationReply
from sessions_exec.llm.streaming import OnText


class Model(Protocol):
    """The model of one agent, for one session."""

    def closed(self) -> str:
        """Why it may not be asked now, in one line; empty if it may. Reads only."""
        ...

    def ask(
        self, conversation: Conversation, *, purpose: str, epoch: int, on_text: OnText, stop: threading.Event
    ) -> ConversationReply:
        """Make exactly one call, and put it on record. No transaction is open meanwhile (A2).

        Raises `ModelCallFailed`, and `CallStopped` once `stop` is set.
        """
        ...
