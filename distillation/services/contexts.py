"""The words around what a distilled memory rests on: they help to find it (M7), and go with their messages (D23)."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Collection, Sequence
from uuid import UUID

from django.conf import settings

from agentmemory.models import Memory, MemorySource, Message, Session
from agentmemory.models.memories import CONTEXT_LENGTH
from agentmemory.services import memories, sources
from distillation import windows

NEIGHBOURS = 1


def of_window(window: windows.Window, seqs: Collection[int]) -> str:
    """The words of the messages with these numbers and of their neighbours, as they were shown."""
    places = {at for at, shown in enumerate(window.shown) if shown.seq in seqs}
    near = sorted({at + step for at in places for step in range(-NEIGHBOURS, NEIGHBOURS + 1)})
    return _joined([window.shown[at].text for at in near if 0 <= at < len(window.shown)])


def beside(session: Session, uids: Sequence[str]) -> set[UUID]:
    """Memories that rest on a message next to one of these: its words are in their context, too."""
    gone = Message.objects.filter(session=session, uid__in=uids).exclude(text="").values_list("seq", flat=True)
    left = Message.objects.speech().filter(session=session).exclude(uid__in=uids).order_by("seq")
    seqs = list(left.values_list("seq", flat=True))
    near: set[int] = set()
    for seq in gone:
        at = bisect(seqs, seq)
        near.update(seqs[max(0, at - NEIGHBOURS) : at + NEIGHBOURS])
    rows = MemorySource.objects.filter(session=session, seq__in=near, gone_at__isnull=True)
    return set(rows.values_list("memory_id", flat=True))


def forget(memory: Memory, *, session: Session, uids: Sequence[str]) -> None:
    """Make the context of a locked memory again without these messages, as its next version where it changes."""
    context = _standing(memory, session, uids) if memory.context else ""
    if context != memory.context:
        memory.context = context
        memories.save_version(memory, ["context"])


def _standing(memory: Memory, session: Session, gone: Sequence[str]) -> str:
    found: dict[tuple[int, int], str] = {}
    for source in sources.standing(memory).filter(session__isnull=False):
        speech = Message.objects.speech().filter(session=source.session_id)
        if source.session_id == session.pk:
            speech = speech.exclude(uid__in=gone)
        before = speech.filter(seq__lt=source.seq).order_by("-seq")[:NEIGHBOURS]
        after = speech.filter(seq__gt=source.seq).order_by("seq")[:NEIGHBOURS]
        for message in (*before, *speech.filter(seq=source.seq), *after):
            found[message.session_id, message.seq] = windows.cut(message.text, settings.AGENTMEMORY_CHARS_PER_MESSAGE)
    return _joined([found[place] for place in sorted(found)])


def _joined(texts: Sequence[str]) -> str:
    return "\n".join(texts)[:CONTEXT_LENGTH].strip()
