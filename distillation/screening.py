"""Whether a statement reads as if it told an agent what to do (pure).

Memories are read by agents. What a transcript planted is held back until a person has looked at it (D12); a fact about
prompts or instructions is none of that.
"""

from __future__ import annotations

import re

REASON = "it reads like an instruction to an agent: a person decides"

_TOLD = re.compile(
    "|".join(
        (
            r"\b(?:ignore|disregard|forget|override|bypass)\b.{0,20}\b(?:previous|prior|earlier|above|all|any|your|these)\b"
            r".{0,20}\b(?:instructions?|prompts?|rules|guidelines|messages)\b",
            r"\byou are now\b",
            r"\bfrom now on,? you\b",
            r"\b(?:jailbreak|developer mode|do anything now)\b",
            r"\b(?:dear|attention|hey),? (?:the |any |all |every )?(?:ai|llm|assistants?|agents?|models?)\b",
            r"</?(?:system|transcript|instructions?|memory|memories)>",
            r"(?:^|\n)\s*\[?(?:system|assistant|human)\]?\s*:",
            r"\b(?:do not|don't|never) (?:tell|inform|mention|reveal|report)\b.{0,40}"
            r"\b(?:user|person|human|operator)s?\b",
        )
    ),
    re.IGNORECASE | re.DOTALL,
)


def instructs(content: str) -> bool:
    """Whether a memory of this content has to wait for a person."""
    return _TOLD.search(content) is not None
