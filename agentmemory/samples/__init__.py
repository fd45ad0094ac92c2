"""Sample transcripts for the demonstration, in the form in which the JSON API takes messages. See the README beside."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from typing import Any


@dataclass(frozen=True, slots=True)
class SampleMessage:
    """One message as a client would send it. `content` is a string or a list of blocks."""

    uid: str
    type: str
    content: Any
    occurred_at: datetime


@dataclass(frozen=True, slots=True)
class Sample:
    """One session of the agent with the handle `agent`, its messages in order; the last one ends a turn."""

    id: str
    title: str
    agent: str
    messages: tuple[SampleMessage, ...]


def load() -> tuple[Sample, ...]:
    """All samples, the oldest session first."""
    files = [file for file in resources.files(__name__).iterdir() if file.name.endswith(".json")]
    samples = (_sample(json.loads(file.read_text(encoding="utf-8"))) for file in files)
    return tuple(sorted(samples, key=lambda sample: sample.messages[0].occurred_at))


def _sample(data: dict[str, Any]) -> Sample:
    messages = tuple(
        SampleMessage(
            uid=message["uid"],
            type=message["type"],
            content=message["content"],
            occurred_at=datetime.fromisoformat(message["occurred_at"]),
        )
        for message in data["messages"]
    )
    return Sample(**data["session"], messages=messages)
