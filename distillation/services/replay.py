"""A pass made visible again: its window and its prompt are not stored, they follow from its row (D25)."""

from __future__ import annotations

from agentmemory.models import Message
from distillation import prompts, windows
from distillation.models import DistillationPass
from distillation.services import reading


def window_of(distillation_pass: DistillationPass) -> windows.Window | None:
    """What the pass was shown; nothing once its session is gone."""
    return reading.window_of(distillation_pass) if distillation_pass.session_id else None


def erased_since(distillation_pass: DistillationPass) -> int:
    """How many of the messages that the pass was shown are not there any more, in a session that is."""
    if distillation_pass.session_id is None:
        return 0
    shown = set(distillation_pass.shown)
    left = Message.objects.filter(session=distillation_pass.session_id, seq__in=shown)
    return len(shown) - left.count()


def prompt_of(distillation_pass: DistillationPass) -> prompts.Prompt | None:
    """What the model was asked; nothing for a pass that asked none, or whose session is gone.

    It is made with today's wording: `prompt_version` on the pass tells whether that was another.
    """
    window = window_of(distillation_pass)
    if window is None or not distillation_pass.fence:
        return None
    known = reading.known_of(distillation_pass)
    return reading.prompt(distillation_pass.agent, window, known, fence=distillation_pass.fence)
