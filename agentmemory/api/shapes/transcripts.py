"""Sessions and messages."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from agentmemory.api.fields import Content, Moment, Text, Timestamp, Uid, Uids, Whole
from agentmemory.api.problems import TooLarge
from agentmemory.api.shapes import In, Out
from agentmemory.models import Message
from agentmemory.services import transcripts

MOST_MESSAGES = 1_000

Type = Literal["user", "assistant", "system", "result"]
Delivery = Literal["consumed", "enqueued", "deferred", "failed"]


class SessionIn(In):
    """A session to be created or adopted. What is left out, or null, stays as it is."""

    title: str | None = None
    metadata: dict[str, Any] | None = None
    complete: bool | None = Field(default=None, description="true: finished to its last message.")


class MessageIn(In):
    """A message as it was said. NUL, lone surrogates and secrets in it are replaced at the door."""

    uid: Uid
    type: Type
    content: Content
    occurred_at: Moment | None = None
    delivery: Delivery = "consumed"
    supersedes: Uids = []
    parent_tool_use_id: str | None = None
    subtype: str | None = None
    is_error: bool = False

    def new(self) -> transcripts.NewMessage:
        """The message as the transcript takes it."""
        return transcripts.NewMessage(
            uid=self.uid,
            type=self.type,
            content=self.content,
            occurred_at=self.occurred_at,
            delivery=self.delivery,
            supersedes=self.supersedes,
            parent_tool_use_id=self.parent_tool_use_id or "",
            subtype=self.subtype or "",
            is_error=self.is_error,
        )


class ExecutionIn(In):
    """The execution that a runner acts under."""

    id: str | Whole
    epoch: Whole


class MessagesIn(In):
    """Messages in their order, at most 1,000 of them or 8 MiB."""

    messages: list[MessageIn] = Field(fail_fast=True, json_schema_extra={"maxItems": MOST_MESSAGES})
    execution: ExecutionIn | None = None

    @field_validator("messages", mode="before")
    @classmethod
    def _not_too_many(cls, value: Any) -> Any:
        if isinstance(value, list) and len(value) > MOST_MESSAGES:
            raise TooLarge(f"A call may have {MOST_MESSAGES:,} messages; this has {len(value):,}.")
        return value


class AppendedOut(Out):
    """What an append did."""

    accepted: int
    duplicates: int
    last_seq: int
    terminal_seq: int


class DeliveryIn(In):
    """What became of a user message."""

    delivery: Delivery


class RetractionsIn(In):
    """Messages that are taken back, also such as have not arrived yet."""

    uids: Uids
    reason: Text | None = None


class RetractedOut(Out):
    """How many messages stand retracted that did not before."""

    retracted: int


class RewindIn(In):
    """Where to go back to: what is later is removed."""

    after_uid: Uid


class RewoundOut(Out):
    """How many messages were removed. `last_seq` stays: numbers are never used again."""

    removed: int
    last_seq: int


class RemovedOut(Out):
    """A deletion that was done."""

    deleted: bool


class MessageOut(Out):
    """A message of a transcript."""

    uid: str
    seq: int
    type: Type
    content: Content
    delivery: Delivery
    is_error: bool
    tool_outcomes: dict[str, Any]
    superseded_by: str | None
    retracted: bool
    occurred_at: Timestamp | None


def message_out(message: Message) -> MessageOut:
    """A message as it is kept."""
    values: dict[str, Any] = {
        name: getattr(message, name)
        for name in ("uid", "seq", "type", "content", "delivery", "is_error", "tool_outcomes", "occurred_at")
    }
    return MessageOut(**values, superseded_by=message.superseded_by or None, retracted=message.retracted_at is not None)
