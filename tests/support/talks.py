"""What importers gave, looked at as distillation will."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentmemory import speech
from agentmemory.importers import base

SAMPLES = Path(__file__).parents[3] / "shared" / "data" / "transcripts"
needs_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="the sample transcripts are not beside the checkout")


def only(transcript: base.Transcript) -> base.ImportedSession:
    (session,) = transcript.sessions
    return session


def said(session: base.ImportedSession) -> list[tuple[str, str]]:
    """Who said what, reminders cut out."""
    return [
        (message.type, speech.spoken(speech.visible_text(message.content))) for message in speech_of(session.messages)
    ]


def speech_of(messages: Sequence[base.ImportedMessage]) -> list[base.ImportedMessage]:
    return [
        message
        for message in messages
        if speech.is_speech(
            type=message.type,
            subtype=message.subtype,
            text=speech.visible_text(message.content),
            parent_tool_use_id=message.parent_tool_use_id,
        )
    ]


def counts(transcript: base.Transcript) -> tuple[int, int, int]:
    """Prompts, answers, and turns: prompts that got an answer before the next one."""
    spoken = [[message.type for message in speech_of(session.messages)] for session in transcript.sessions]
    flat = list(itertools.chain.from_iterable(spoken))
    turns = sum(pair == ("user", "assistant") for talk in spoken for pair in itertools.pairwise(talk))
    return flat.count("user"), flat.count("assistant"), turns
