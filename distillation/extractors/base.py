"""What an extractor is given and gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from distillation import prompts, windows
from sessions_exec.llm.messages import Endpoint


@dataclass(frozen=True, kw_only=True)
class ExtractionTask:
    """One window to be read. `endpoint` is `None` for an extractor that reaches no provider."""

    prompt: prompts.Prompt
    window: windows.Window
    known: Sequence[prompts.Known]
    model: str
    endpoint: Endpoint | None
    structured: bool
    """Whether the provider is known to serve structured outputs."""
    max_output_tokens: int


@dataclass(frozen=True, kw_only=True)
class Extraction:
    """The answer's text as it came, for the parser, and what it cost."""

    text: str
    input_tokens: int = 0
    output_tokens: int = 0


class Extractor(Protocol):
    """Turns a window into an answer. Raises `ModelCallFailed`; waits for the network, so never in a transaction."""

    @property
    def name(self) -> str:
        """As it is kept on the pass (D25)."""
        ...

    def extract(self, task: ExtractionTask) -> Extraction: ...
