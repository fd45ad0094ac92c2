"""What must be true of the rows and of the model server's ledger once everything has settled, whatever died (D1, D15).

Each user message of a told session is a statement of words that no other has, and the model answers with one memory
for each, so that every message can be followed to the memory it became.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import F

from agentmemory.models import Agent, Memory, MemoryEvent, MemorySource, Message, Session
from agentmemory.services import sessions, transcripts
from agentmemory.services.transcripts import NewMessage
from distillation.models import Cursor, DistillationPass, Quarantine
from tests.support.model_server import ModelServer

Outcome = DistillationPass.Outcome


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """What a settled run came to."""

    messages: int
    passes: int
    killed: int
    calls: int
    calls_again: int
    """Calls for a window that was asked about before: their first answer had not been stored."""

    def __str__(self) -> str:
        return (
            f"{self.messages} messages, {self.passes} passes applied, {self.killed} broken off, "
            f"{self.calls} calls, {self.calls_again} of them again"
        )


def statement(seed: str) -> str:
    """Six words that no other seed has."""
    digest = hashlib.sha256(seed.encode()).hexdigest()
    letters = "".join(chr(ord("a") + int(digest[at : at + 2], 16) % 26) for at in range(0, 60, 2))
    return " ".join(letters[at : at + 5] for at in range(0, 30, 5)) + "."


def tell(agent: Agent, name: str, *, turns: int, per_turn: int = 3) -> Session:
    """A session of so many finished turns, or so many more."""
    session, _ = sessions.adopt(agent=agent, name=name)
    for _ in range(turns):
        start = session.last_seq
        messages = [
            NewMessage(uid=f"u{start + at}", type="user", content=statement(f"{agent.pk} {name} {start + at}"))
            for at in range(per_turn)
        ]
        messages.append(NewMessage(uid=f"r{start}", type="result", content="done"))
        transcripts.append(session=session, messages=messages)
        session.refresh_from_db()
    return session


def expire_leases() -> None:
    """Age every lease, and every wait, as if their time had passed."""
    Cursor.objects.filter(expires_at__isnull=False).update(expires_at=F("acquired_at"))
    Cursor.objects.update(next_attempt_at=None, enqueued_at=None)


def check(server: ModelServer) -> Ledger:
    """Raise `AssertionError` where anything was lost, doubled, paid twice for nothing, or left lying."""
    for session in Session.objects.all():
        _check_session(session)
    assert not DistillationPass.objects.filter(outcome=Outcome.RUNNING).exists()
    assert not Quarantine.objects.exists()
    _check_memories()
    calls = [tuple(text for _, role, text in request.shown if role == "user") for request in server.requests]
    _check_payments(server)
    return Ledger(
        messages=Message.objects.count(),
        passes=DistillationPass.objects.filter(outcome__in=[Outcome.APPLIED, Outcome.EMPTY]).count(),
        killed=DistillationPass.objects.filter(outcome=Outcome.FAILED).count(),
        calls=len(calls),
        calls_again=sum(count - 1 for count in Counter(calls).values()),
    )


def _check_session(session: Session) -> None:
    cursor = Cursor.objects.get(session=session)
    assert cursor.position == cursor.watermark == session.terminal_seq, (cursor.position, cursor.watermark)
    assert (cursor.holder, cursor.expires_at, cursor.attempts) == ("", None, 0)
    windows = DistillationPass.objects.filter(cursor=cursor, outcome__in=[Outcome.APPLIED, Outcome.EMPTY])
    place = 0
    shown: list[int] = []
    for row in windows.order_by("pk"):
        assert row.start == place, f"pass {row.pk} begins at {row.start}, the one before it ended at {place}"
        place = row.end
        shown += row.shown
    assert place == cursor.position
    said = list(Message.objects.filter(session=session, type="user").order_by("seq").values_list("seq", flat=True))
    assert shown == said


def _check_memories() -> None:
    said = Counter(Message.objects.filter(type="user").values_list("text", flat=True))
    kept = Counter(Memory.objects.values_list("content", flat=True))
    assert kept == said, f"lost: {list(said - kept)}, doubled: {list(kept - said)}"
    assert set(Memory.objects.values_list("version", flat=True)) <= {1}
    assert MemoryEvent.objects.count() == len(said)
    sources = Counter(MemorySource.objects.values_list("session_name", "seq"))
    assert sum(sources.values()) == len(said)


def _check_payments(server: ModelServer) -> None:
    """Once an answer was stored, no call for any of its messages came after; what was stored is on the books."""
    for row in DistillationPass.objects.filter(answered_at__isnull=False):
        assert (row.input_tokens, row.output_tokens) == (100, 20)
        assert row.answered_at is not None
        texts = _texts(row)
        after = [request for request in server.requests if request.at > row.answered_at.timestamp()]
        again = [request for request in after if texts & {text for _, _, text in request.shown}]
        assert not again, f"pass {row.pk} had its answer, and was paid for again"
    stored = DistillationPass.objects.filter(answered_at__isnull=False).count()
    assert stored <= len(server.requests)


def _texts(row: DistillationPass) -> set[str]:
    said: Sequence[str] = list(
        Message.objects.filter(session=row.session, seq__in=row.shown).values_list("text", flat=True)
    )
    return set(said)
