"""What a recovery says in the transcript: to the model, which must not take what is unknown for done (S8)."""

from __future__ import annotations

TOOL_OUTCOME = (
    "outcome unknown: whoever ran this call ended before its result was recorded. It may have happened wholly, in part "
    "or not at all. Do not assume that it succeeded; look first, and do not repeat it blindly."
)
STEP_UNKNOWN = (
    "The run of this session ended unexpectedly while a step was under way. Its outcome is unknown: it may have "
    "happened wholly, in part or not at all. Do not assume that it succeeded."
)
STEP_READY = (
    "The run of this session ended unexpectedly before its next step was begun. Nothing is known to have been left "
    "half done."
)
CONTINUE = (
    "The previous run of this session ended unexpectedly. Look at what is marked as an error or as of unknown outcome "
    "in the conversation, find out what really happened before you repeat anything, then go on from there."
)
ENDED = "The turn was ended as failed by an operator."
GIVEN_UP = "The turn was ended as failed: its run ended unexpectedly again and again."
