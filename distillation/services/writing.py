"""An answer becomes memories: judged, compared with what the agent has, written with its sources (D8 to D11)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from agentmemory import likeness
from agentmemory.errors import AgentMemoryError
from agentmemory.models import Agent, Memory, Message
from agentmemory.services import distilled, redaction
from distillation import answers, judging, screening, windows
from distillation.errors import NothingWritten
from distillation.models import Cursor, DistillationPass
from distillation.services import contexts, reading

ALIKE_CANDIDATES = 5
TAKEN_BACK = "what it rests on was taken back meanwhile"


@dataclass(kw_only=True)
class Written:
    """What became of an answer's candidates, as it is kept on the pass."""

    written: list[dict[str, Any]] = field(default_factory=list)
    refused: list[dict[str, Any]] = field(default_factory=list)


def write(*, cursor: Cursor, row: DistillationPass, window: windows.Window) -> Written:
    """Write the candidates of a pass's stored answer, within the caller's transaction.

    Raises `AnswerUnusable`, and `NothingWritten` when there were candidates and every one was refused; `row.refused`
    then says why.
    """
    judged = judge(answers.parse(row.answer), window=window)
    _one_at_a_time(cursor.agent_id)
    outcome = Written(refused=[_refusal(each.key, each.reason) for each in judged.refused])
    standing = Message.objects.speech().filter(session=cursor.session, seq__in=window.seqs)
    messages = {message.seq: message for message in standing}
    # In the order of their keys, so that two passes of one agent lock rows in one order.
    for candidate in sorted(judged.accepted, key=lambda each: each.key):
        _write_one(cursor, row, window, messages, candidate, outcome)
    if not outcome.written and any(each["reason"] != TAKEN_BACK for each in outcome.refused):
        row.refused = outcome.refused
        raise NothingWritten("every candidate was refused: " + "; ".join(each["reason"] for each in outcome.refused))
    return outcome


def _one_at_a_time(agent_id: int) -> None:
    """Let two passes of one agent write one after the other, until the transaction ends.

    What one of them writes may be what the other has found, too, under another key: each has to see it (D9).
    """
    Agent.objects.select_for_update(no_key=True).filter(pk=agent_id).first()


def judge(candidates: list[answers.RawCandidate], *, window: windows.Window) -> judging.Judged:
    """Tell the candidates that may be written from those that may not, by the installation's limits."""
    limits = judging.Limits(
        candidates=settings.AGENTMEMORY_CANDIDATES_PER_PASS,
        chars_per_candidate=settings.AGENTMEMORY_CHARS_PER_CANDIDATE,
    )
    return judging.judge(candidates, window=window, limits=limits, secret_kinds=redaction.secret_kinds)


def _write_one(
    cursor: Cursor,
    row: DistillationPass,
    window: windows.Window,
    messages: dict[int, Message],
    candidate: judging.Candidate,
    outcome: Written,
) -> None:
    sources = [
        distilled.Source(message=messages[seq], quote=candidate.quote, verified=_verified(candidate, window, seq))
        for seq in candidate.sources
        if seq in messages
    ]
    if not sources:
        outcome.refused.append(_refusal(candidate.key, TAKEN_BACK))
        return
    known = _repeated(cursor, candidate)
    try:
        if known is not None:
            distilled.add_sources(memory=known, session=cursor.session, sources=sources, pass_id=row.pk)
            outcome.written.append(_entry(known, distilled.Action.KNOWN, candidate))
            return
        finding = distilled.Finding(
            key=candidate.key,
            content=candidate.content,
            tags=candidate.tags,
            context=contexts.of_window(window, candidate.sources),
            sources=sources,
            held=screening.REASON if screening.instructs(candidate.content) else "",
        )
        result = distilled.write(session=cursor.session, finding=finding, pass_id=row.pk)
    except AgentMemoryError as error:
        outcome.refused.append(_refusal(candidate.key, str(error)))
    else:
        outcome.written.append(_entry(result.memory, result.action, candidate))


def _repeated(cursor: Cursor, candidate: judging.Candidate) -> Memory | None:
    """The agent's memory that says the same under another key (D9); one of the same key is an update."""
    near = reading.related(cursor.agent, candidate.content, limit=ALIKE_CANDIDATES)
    if any(memory.key == candidate.key for memory in near):
        return None
    return next((memory for memory in near if likeness.near_duplicate(memory.content, candidate.content)), None)


def _verified(candidate: judging.Candidate, window: windows.Window, seq: int) -> bool:
    return bool(candidate.quote) and judging.occurs(candidate.quote, window=window, sources=(seq,))


def _entry(memory: Memory, action: distilled.Action, candidate: judging.Candidate) -> dict[str, Any]:
    return {
        "key": memory.key,
        "memory": str(memory.pk),
        "version": memory.version,
        "action": action.value,
        "sources": list(candidate.sources),
        "verified": candidate.quote_verified,
    }


def _refusal(key: str, reason: str) -> dict[str, Any]:
    return {"key": key, "reason": reason}
