"""Transcripts of other programs, read from their files. One module a format; pure, without a database."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from agentmemory.importers import base, chatgpt, claude_code, claude_export, codex, message_list, opencode

FORMATS: Mapping[str, base.Importer] = {
    importer.name: importer
    for importer in (
        claude_code.ClaudeCode(),
        codex.Codex(),
        opencode.OpenCode(),
        chatgpt.ChatGPT(),
        claude_export.ClaudeExport(),
        message_list.MessageList(),
    )
}
"""Every format by its name, the most particular first."""


def detect(path: Path) -> base.Importer | None:
    """The importer for this file, judged by its content alone, or None: no known format.

    Raises `UnreadableTranscript` where the file does not open.
    """
    try:
        return next((importer for importer in FORMATS.values() if importer.recognises(path)), None)
    except OSError as error:
        raise base.UnreadableTranscript(f"The file does not open: {error.strerror or error}.") from error
