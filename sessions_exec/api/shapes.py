"""Inputs, executions and events, as they come in and go out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from agentmemory.api.fields import Content, Prompt, Text, Timestamp, Uid
from agentmemory.api.shapes import In, Out
from agentmemory.api.shapes.transcripts import ExecutionIn
from sessions_exec.models import Execution, Input
from sessions_exec.services import prompts, standing
from sessions_exec.services.events import Event

Delivery = Literal["steer", "queue"]
Phase = Literal["ready", "safe", "unknown"]


class InputIn(In):
    """A prompt for a session. Its id is the uid of the message that it becomes."""

    id: Uid
    prompt: Prompt
    delivery: Delivery = Field(
        default="steer", description="`steer`: at the next step. `queue`: when the session would go idle."
    )
    resume: bool = Field(default=True, description="Whether it is wanted to be run now.")


class InputDeliveryIn(In):
    """When an input is to be promoted."""

    delivery: Delivery


class AcquireIn(In):
    """Who wants to run a session, and for how long each renewal holds; by default AGENTMEMORY_EXECUTION_LEASE."""

    owner: Annotated[Text, Field(min_length=1, max_length=200)]
    ttl_seconds: Annotated[float, Field(ge=1, le=300)] | None = None


class RenewIn(ExecutionIn):
    """A renewal. It may move the phase, and say which assistant message is in the making."""

    phase: Phase | None = None
    assistant_uid: Annotated[Text, Field(max_length=200)] | None = None


class PromoteIn(ExecutionIn):
    """Where the run has come to: a `step` is about to begin, or the session would go `idle`."""

    boundary: Literal["step", "idle"]


class InputOut(Out):
    """An input: `state` is `pending`, `promoted` (then `seq` is its message's) or `cancelled`."""

    id: str
    prompt: Content | None = Field(description="null where it was taken back, or its message removed.")
    delivery: Delivery
    kind: Literal["prompt", "continuation"]
    state: Literal["pending", "promoted", "cancelled"]
    resume: bool
    seq: int | None
    reason: str | None = Field(description="Why it waits, in words for people; null where it waits no longer.")
    created_at: Timestamp


class AcquiredOut(Out):
    """The right to run a session. Every call of the run names `id` and `epoch`."""

    id: UUID
    epoch: int
    phase: Phase
    expires_at: Timestamp


class RenewedOut(Out):
    """How an execution stands. `interrupted`: settle what is under way, then release."""

    phase: Phase
    expires_at: Timestamp
    interrupted: bool


class PromotedOut(Out):
    """An input that is a message now."""

    id: str
    uid: str
    seq: int
    prompt: Content
    delivery: Delivery


class PromotionOut(Out):
    """Inputs that became messages, in their order."""

    items: list[PromotedOut]


class ReleasedOut(Out):
    """The session was given back; so many inputs wait in it."""

    released: bool
    pending: int


class InterruptedOut(Out):
    """Whether somebody runs the session, and so will hear of it."""

    interrupted: bool


class EventOut(Out):
    """One thing that happened in a session. `data` names the ids; where something was said, it carries that too."""

    seq: int
    type: str
    at: Timestamp
    data: dict[str, Any]


def input_out(row: Input) -> InputOut:
    return inputs_out([row])[0]


def inputs_out(rows: Sequence[Input]) -> list[InputOut]:
    """Inputs of one session, with what they say and why they wait."""
    names = ("delivery", "kind", "state", "resume", "seq", "created_at")
    said, why = prompts.of(rows), standing.reasons(rows)
    values: list[dict[str, Any]] = [{name: getattr(row, name) for name in names} for row in rows]
    return [
        InputOut(id=row.uid, prompt=said[row.uid], reason=why.get(row.pk), **each)
        for row, each in zip(rows, values, strict=True)
    ]


def acquired_out(row: Execution) -> AcquiredOut:
    return AcquiredOut(id=row.execution_id, epoch=row.epoch, phase=row.phase, expires_at=row.expires_at)


def renewed_out(row: Execution) -> RenewedOut:
    values = {"phase": row.phase, "expires_at": row.expires_at, "interrupted": row.interrupted_at is not None}
    return RenewedOut(**values)


def promoted_out(row: Input) -> PromotedOut:
    values = {"id": row.uid, "uid": row.uid, "seq": row.seq, "prompt": row.prompt, "delivery": row.delivery}
    return PromotedOut(**values)


def event_out(event: Event) -> EventOut:
    return EventOut(seq=event.seq, type=event.type, at=event.at, data=event.data)
