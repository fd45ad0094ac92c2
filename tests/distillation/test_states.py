"""How a cursor stands: the word that the code gives to a row, and the one that the database finds."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from agentmemory.models import Agent
from distillation.models import Cursor
from distillation.services import states
from tests.distillation.conftest import Tell, cursor_of

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


def test_the_database_finds_the_word_that_the_code_gives(agent: Agent, tell: Tell) -> None:
    cursor = cursor_of(tell("Remember: the staging system listens on port 8443."))
    now = timezone.now()
    choices: dict[str, tuple[Any, ...]] = {
        "expires_at": (None, now - HOUR, now + HOUR),
        "place": ((2, None), (0, None), (2, 1)),
        "next_attempt_at": (None, now - HOUR, now + HOUR),
        "waits_for": ("", "blocked: today's budget is spent", "skipped: no extractor", "due: the others go first"),
        "status": (Agent.Status.ACTIVE, Agent.Status.PAUSED),
    }
    seen = set()
    for values in itertools.product(*choices.values()):
        row = dict(zip(choices, values, strict=True))
        Agent.objects.filter(pk=agent.pk).update(status=row.pop("status"))
        position, retry = row.pop("place")
        held = {"holder": "w" if row["expires_at"] else ""}
        Cursor.objects.filter(pk=cursor.pk).update(position=position, watermark=2, retry_seq=retry, **row, **held)
        found = Cursor.objects.select_related("agent", "space").get(pk=cursor.pk)
        word = states.describe(found, now, private=True).name
        seen.add(word)
        assert Cursor.objects.alias(word=states.word(now)).filter(word=word).exists(), (word, values)
    assert seen == {states.IDLE, *states.WORK}


def test_those_that_are_behind_are_counted_by_their_state_as_far_as_one_looks(tell: Tell) -> None:
    for name in ("one", "two", "three"):
        tell("Remember: the staging system listens on port 8443.", name=name)
    Cursor.objects.filter(session__name="one").update(next_attempt_at=timezone.now() + HOUR)

    assert states.counted(most=10) == {"due": 2, "running": 0, "backing_off": 1, "blocked": 0, "skipped": 0}
    assert sum(states.counted(most=2).values()) == 2
