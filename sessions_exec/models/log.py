"""What happened in each session, numbered without gaps, and never changed (S10)."""

from __future__ import annotations

import pgtrigger
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from agentmemory.models import Session, Space

DELETED_SESSION = "agentmemory.deleted_session"
"""The database setting by which a transaction says that it deletes a session, named by its key."""

_UNLESS_MARKED = (
    f"IF current_setting('{DELETED_SESSION}', true) = OLD.session_id::text "
    "OR current_setting('agentmemory.purge', true) = 'on' THEN RETURN OLD; END IF; "
    "RAISE EXCEPTION 'events are deleted with their session or by a purge alone';"
)


class EventCounter(models.Model):
    """The number of a session's newest event. Its row's lock makes the numbers those of the commits' order."""

    session = models.OneToOneField(
        Session, on_delete=models.CASCADE, primary_key=True, related_name="event_counter", db_constraint=False
    )
    space = models.ForeignKey(Space, on_delete=models.RESTRICT, related_name="+", db_constraint=False)
    last_seq = models.PositiveBigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.session_id}: {self.last_seq}"


class SessionEvent(models.Model):
    """One thing that happened in a session, written in the transaction of what it tells. Holds no content."""

    class Type(models.TextChoices):
        SESSION_CREATED = "session.created"
        MESSAGE_APPENDED = "message.appended"
        MESSAGE_CHANGED = "message.changed"
        INPUT_ADMITTED = "input.admitted"
        INPUT_PROMOTED = "input.promoted"
        INPUT_CANCELLED = "input.cancelled"
        EXECUTION_ACQUIRED = "execution.acquired"
        EXECUTION_PHASE = "execution.phase"
        EXECUTION_INTERRUPTED = "execution.interrupted"
        EXECUTION_RECOVERED = "execution.recovered"
        EXECUTION_RELEASED = "execution.released"
        TURN_ENDED = "turn.ended"

    id = models.BigAutoField(primary_key=True)
    space = models.ForeignKey(Space, on_delete=models.RESTRICT, related_name="+", db_constraint=False)
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="events", db_constraint=False)
    seq = models.PositiveBigIntegerField()
    type = models.CharField(max_length=30, choices=Type)
    at = models.DateTimeField(db_default=Now())
    data = models.JSONField(default=dict)

    class Meta:
        ordering = ["session_id", "seq"]
        constraints = [
            models.UniqueConstraint(fields=["session", "seq"], name="event_seq_unique_in_session"),
            models.CheckConstraint(condition=Q(seq__gte=1), name="event_seq_from_one"),
        ]
        triggers = [
            pgtrigger.Protect(name="event_refuses_update", operation=pgtrigger.Update),
            pgtrigger.Trigger(
                name="event_refuses_delete", operation=pgtrigger.Delete, when=pgtrigger.Before, func=_UNLESS_MARKED
            ),
        ]

    def __str__(self) -> str:
        return f"{self.seq} {self.type}"
