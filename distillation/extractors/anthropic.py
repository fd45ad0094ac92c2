"""Asks a model that is reached over the Anthropic wire."""

from __future__ import annotations

from distillation import answers
from distillation.extractors.base import Extraction, ExtractionTask
from sessions_exec.llm import anthropic_client
from sessions_exec.llm.messages import FailureKind, ModelCallFailed, ModelRequest


class AnthropicExtractor:
    """One call a window, without tools; what comes back is judged by the parser alone."""

    name = "anthropic"

    def extract(self, task: ExtractionTask) -> Extraction:
        if task.endpoint is None:
            raise ModelCallFailed(kind=FailureKind.AUTHENTICATION, message="no address and key are set")
        request = ModelRequest(
            model=task.model,
            system=task.prompt.system,
            prompt=task.prompt.user,
            max_tokens=task.max_output_tokens,
            schema=answers.SCHEMA if task.structured else None,
        )
        reply = anthropic_client.complete(task.endpoint, request)
        return Extraction(text=reply.text, input_tokens=reply.input_tokens, output_tokens=reply.output_tokens)
