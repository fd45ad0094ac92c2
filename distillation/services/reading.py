"""What a pass reads: the window of a session, the agent's related memories, the prompt made of both (D3 to D5, D11)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings

from agentmemory import speech
from agentmemory.models import Agent, Memory, MemoryEvent, Message
from agentmemory.querysets.memories import MemoryQuerySet
from agentmemory.search import lexical
from distillation import prompts, windows
from distillation.models import Cursor, DistillationPass

KNOWN_MEMORIES = 20
# Of each known memory so much is shown, in characters: enough to tell what it says.
KNOWN_CHARS = 1_000
# An estimate reads so many messages of a session at once.
READ_AT_ONCE = 300
# What a window is made of: the content of a message can be far longer than what it says.
_SPOKEN = ("seq", "uid", "type", "text", "occurred_at")


@dataclass(frozen=True, kw_only=True)
class KnownVersion:
    """A memory that the model is shown, as it was then."""

    memory_id: str
    version: int
    known: prompts.Known


def budget(cursor: Cursor) -> windows.Budget:
    """What the next pass may show: the installation's limits, less while the window is halved (D20)."""
    most = settings.AGENTMEMORY_MESSAGES_PER_PASS
    return windows.Budget(
        messages=min(most, cursor.window_limit or most),
        chars_per_message=settings.AGENTMEMORY_CHARS_PER_MESSAGE,
        chars_per_transcript=settings.AGENTMEMORY_CHARS_PER_TRANSCRIPT,
    )


def next_window(cursor: Cursor) -> windows.Window:
    """The stretch after the cursor's position, within its watermark."""
    limits = budget(cursor)
    # One more than may be shown tells that something is left.
    utterances = _speech(cursor, after=cursor.position, most=limits.messages + 1)
    return windows.build(utterances=utterances, start=cursor.position, limit=cursor.watermark, budget=limits)


def windows_ahead(cursor: Cursor) -> Iterator[windows.Window]:
    """The windows that one pass after another would read, up to the watermark, out of few readings."""
    limits, position = budget(cursor), cursor.position
    ahead: list[windows.Utterance] = []
    complete = False
    while position < cursor.watermark:
        if len(ahead) <= limits.messages and not complete:
            most = max(READ_AT_ONCE, limits.messages + 1)
            ahead = _speech(cursor, after=position, most=most)
            complete = len(ahead) < most
        window = windows.build(
            utterances=ahead[: limits.messages + 1], start=position, limit=cursor.watermark, budget=limits
        )
        yield window
        position, ahead = window.end, ahead[len(window.shown) :]


def _speech(cursor: Cursor, *, after: int, most: int) -> list[windows.Utterance]:
    """What was said behind a place, within the watermark. What does not speak is never loaded (D5)."""
    rows = Message.objects.speech().filter(session_id=cursor.session_id, seq__gt=after, seq__lte=cursor.watermark)
    return [utterance(row) for row in rows.only(*_SPOKEN).order_by("seq")[:most]]


def retried_window(cursor: Cursor, seq: int) -> windows.Window:
    """One message alone, behind the position: what was released from quarantine."""
    rows = Message.objects.speech().filter(session=cursor.session, seq=seq)
    return windows.build(utterances=map(utterance, rows), start=seq - 1, limit=seq, budget=budget(cursor))


def window_of(distillation_pass: DistillationPass) -> windows.Window:
    """The window of a pass made again, without what was taken back or removed since."""
    rows = Message.objects.speech().filter(session__passes=distillation_pass, seq__in=distillation_pass.shown)
    limits = windows.Budget(
        messages=max(1, len(distillation_pass.shown)),
        chars_per_message=settings.AGENTMEMORY_CHARS_PER_MESSAGE,
        # All of it fitted when it was shown.
        chars_per_transcript=max(
            settings.AGENTMEMORY_CHARS_PER_TRANSCRIPT,
            len(distillation_pass.shown) * (settings.AGENTMEMORY_CHARS_PER_MESSAGE + 100),
        ),
    )
    return windows.build(
        utterances=map(utterance, rows.order_by("seq")),
        start=distillation_pass.start,
        limit=distillation_pass.end,
        budget=limits,
    )


def oldest_turn(session_id: int, *, after: int, upto: int) -> datetime | None:
    """When the oldest finished turn that waits in a stretch was finished; nothing where none waits."""
    if after >= upto:
        return None
    waiting = Message.objects.filter(session_id=session_id, seq__gt=after, seq__lte=upto)
    # A tail that was finished by its silence has no end of turn in it.
    first = waiting.filter(ends_turn=True).order_by("seq").first() or waiting.order_by("-seq").first()
    return first.created_at if first is not None else None


def utterance(message: Message) -> windows.Utterance:
    """What a message says, without what was injected into it (D4)."""
    return windows.Utterance(
        seq=message.seq,
        uid=message.uid,
        role=message.type,
        text=speech.spoken(message.text),
        occurred_at=message.occurred_at,
    )


def related(agent: Agent, text: str, *, limit: int = KNOWN_MEMORIES) -> list[Memory]:
    """The agent's distilled memories that have most to do with a text, the best first."""
    mine = _distilled_for(agent)
    hits = lexical.rank(mine, text, limit=limit)
    rows = mine.in_bulk([hit.memory_id for hit in hits])
    return [rows[hit.memory_id] for hit in hits if hit.memory_id in rows]


def known_for(agent: Agent, window: windows.Window) -> list[KnownVersion]:
    """The memories that the model is shown beside a window, so that it updates rather than repeats (D11)."""
    text = "\n".join(shown.text for shown in window.shown)
    return [_known_version(memory) for memory in related(agent, text)]


def newest_known(agent: Agent) -> list[KnownVersion]:
    """As many of the agent's newest distilled memories as a window is shown: about as long, and found at once."""
    newest = _distilled_for(agent).defer("search", "context").order_by("-updated_at", "-id")
    return [_known_version(memory) for memory in newest[:KNOWN_MEMORIES]]


def _distilled_for(agent: Agent) -> MemoryQuerySet:
    return Memory.objects.live().filter(space_id=agent.space_id, owner=agent, origin=Memory.Origin.DISTILLED)


def _known_version(memory: Memory) -> KnownVersion:
    return KnownVersion(memory_id=str(memory.pk), version=memory.version, known=_known(memory))


def known_of(distillation_pass: DistillationPass) -> list[prompts.Known]:
    """The memories that a pass was shown, as they were then, out of their history."""
    wanted = [(memory_id, version) for memory_id, version in distillation_pass.known]
    events = MemoryEvent.objects.filter(pgh_obj_id__in=[memory_id for memory_id, _ in wanted]).order_by("pgh_id")
    then = {(str(event.pgh_obj_id), event.version): _known(event) for event in events}
    return [then[place] for place in wanted if place in then]


def prompt(agent: Agent, window: windows.Window, known: Sequence[prompts.Known], *, fence: str) -> prompts.Prompt:
    """The request for a window."""
    return prompts.build(
        agent_name=agent.name or agent.handle,
        agent_handle=agent.handle,
        window=window,
        known=known,
        fence=fence,
        max_candidates=settings.AGENTMEMORY_CANDIDATES_PER_PASS,
        max_chars=settings.AGENTMEMORY_CHARS_PER_CANDIDATE,
    )


def _known(memory: Memory | MemoryEvent) -> prompts.Known:
    return prompts.Known(key=memory.key, content=windows.cut(memory.content, KNOWN_CHARS))
