"""Who runs a session now, what waits to be said in it, and what was found where a holder died."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from agentmemory.models import Session, Space
from sessions_exec import querysets
from sessions_exec.leases import Lease


class Execution(Lease):
    """The right to run one session: one row a session, kept as long as it, so that its epoch only grows (S1, S2).

    Without a holder nobody runs the session. `execution_id` names its current or last acquisition. An execution that
    has expired still has its holder, until it is recovered: what it left behind must be looked at first (S7).
    """

    class Phase(models.TextChoices):
        READY = "ready", "acquired, nothing uncertain under way"
        SAFE = "safe", "all that was begun is committed"
        UNKNOWN = "unknown", "something was dispatched whose outcome is not known yet"

    session = models.OneToOneField(
        Session, on_delete=models.CASCADE, primary_key=True, related_name="execution", db_constraint=False
    )
    space = models.ForeignKey(Space, on_delete=models.RESTRICT, related_name="+", db_constraint=False)
    execution_id = models.UUIDField(default=uuid.uuid4, editable=False, help_text="New with every acquisition.")
    phase = models.CharField(max_length=20, choices=Phase, default=Phase.SAFE)
    seconds = models.FloatField(default=30.0, help_text="How long each renewal holds.")
    assistant_uid = models.CharField(
        max_length=200, blank=True, default="", help_text="The newest assistant message of this execution."
    )
    interrupted_at = models.DateTimeField(null=True, blank=True, help_text="When it was asked to stop.")
    own = models.BooleanField(
        default=False,
        db_default=False,
        editable=False,
        help_text="The runner of this service has begun a turn, and goes on with it.",
    )
    asked_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When a task was made that is to run it here."
    )
    waits_for = models.CharField(
        max_length=500,
        blank=True,
        default="",
        db_default="",
        editable=False,
        help_text="Why the runner of this service did not take it up.",
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    objects = querysets.ExecutionQuerySet.as_manager()

    class Meta:
        ordering = ["session_id"]
        constraints = [
            # Makes the epoch part of a key, which is what lets renewals pass a fence (see `leases`).
            models.UniqueConstraint(fields=["session", "epoch"], name="execution_session_epoch"),
            models.CheckConstraint(condition=Q(phase__in=["ready", "safe", "unknown"]), name="execution_phase_known"),
            models.CheckConstraint(
                condition=Q(holder="", expires_at__isnull=True) | (~Q(holder="") & Q(expires_at__isnull=False)),
                name="execution_held_until",
            ),
        ]
        indexes = [
            # What the recovery scan reads. Not over the expiry: an index on it would make every renewal rewrite it.
            models.Index(fields=["session"], condition=~Q(holder=""), name="execution_held"),
        ]

    def __str__(self) -> str:
        return f"{self.session_id}"


class Input(models.Model):
    """A prompt admitted to a session: stored before anything is scheduled, and not yet seen by the model (S4)."""

    class Delivery(models.TextChoices):
        STEER = "steer", "at the next step"
        QUEUE = "queue", "when the session would go idle"

    class Kind(models.TextChoices):
        PROMPT = "prompt", "from outside"
        CONTINUATION = "continuation", "from a recovery"

    class State(models.TextChoices):
        PENDING = "pending"
        PROMOTED = "promoted"
        CANCELLED = "cancelled"

    id = models.BigAutoField(primary_key=True)
    space = models.ForeignKey(Space, on_delete=models.RESTRICT, related_name="+", db_constraint=False)
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="inputs", db_constraint=False)
    uid = models.CharField(max_length=200, help_text="The id that clients call it by, and its message's uid.")
    kind = models.CharField(max_length=20, choices=Kind, default=Kind.PROMPT)
    prompt = models.JSONField(null=True, help_text="While it waits. Then its message has it, or nobody.")
    digest = models.CharField(max_length=64, editable=False, help_text="Keyed digest of the prompt as received.")
    redactions = models.JSONField(default=dict, blank=True, help_text="What was replaced at the door, by kind.")
    delivery = models.CharField(max_length=20, choices=Delivery, default=Delivery.STEER)
    admitted_delivery = models.CharField(max_length=20, choices=Delivery, editable=False)
    resume = models.BooleanField(default=True, help_text="Somebody wants it run now; an interrupt clears the wish.")
    state = models.CharField(max_length=20, choices=State, default=State.PENDING)
    seq = models.PositiveBigIntegerField(null=True, blank=True, help_text="The message that it became.")
    settled_at = models.DateTimeField(null=True, blank=True, help_text="When it was promoted or cancelled.")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    objects = querysets.InputQuerySet.as_manager()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["session", "uid"], name="input_uid_unique_in_session"),
            models.UniqueConstraint(fields=["session", "seq"], name="input_seq_unique_in_session"),
            models.CheckConstraint(
                condition=Q(delivery__in=["steer", "queue"], admitted_delivery__in=["steer", "queue"]),
                name="input_delivery_known",
            ),
            models.CheckConstraint(condition=Q(kind__in=["prompt", "continuation"]), name="input_kind_known"),
            models.CheckConstraint(
                condition=Q(state="pending", seq__isnull=True, settled_at__isnull=True)
                | Q(state="promoted", seq__isnull=False, settled_at__isnull=False)
                | Q(state="cancelled", seq__isnull=True, settled_at__isnull=False),
                name="input_settled_once",
            ),
        ]
        indexes = [
            models.Index(fields=["session", "id"], condition=Q(state="pending"), name="input_pending"),
        ]

    def __str__(self) -> str:
        return self.uid


class Recovery(models.Model):
    """What followed one execution that expired in the midst of something: written once for it, whoever looked (S7)."""

    class Outcome(models.TextChoices):
        CONTINUED = "continued", "an input asks to go on from what is known"
        FAILED = "failed", "the turn was ended"

    id = models.BigAutoField(primary_key=True)
    space = models.ForeignKey(Space, on_delete=models.RESTRICT, related_name="+", db_constraint=False)
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="recoveries", db_constraint=False)
    execution_id = models.UUIDField(unique=True)
    epoch = models.PositiveBigIntegerField()
    holder = models.CharField(max_length=200)
    phase = models.CharField(max_length=20, choices=Execution.Phase, help_text="As it was found.")
    expired_at = models.DateTimeField()
    turn = models.PositiveBigIntegerField(help_text="The end of the turn before the one that it was in.")
    message_uid = models.CharField(max_length=200, help_text="The message that says what is uncertain.")
    synthetic = models.BooleanField(default=False, help_text="That message was made, there being none.")
    tool_calls = models.JSONField(default=list, help_text="Ids of calls whose outcome is unknown.")
    continuation = models.OneToOneField(
        Input, on_delete=models.CASCADE, null=True, related_name="recovery", help_text="The input that goes on from it."
    )
    outcome = models.CharField(max_length=20, choices=Outcome)
    recovered_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        verbose_name_plural = "recoveries"
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["session", "epoch"], name="recovery_once_an_execution"),
            models.CheckConstraint(condition=Q(outcome__in=["continued", "failed"]), name="recovery_outcome_known"),
        ]
        indexes = [models.Index(fields=["session", "turn"], name="recovery_turn")]

    def __str__(self) -> str:
        return f"{self.session_id}, epoch {self.epoch}"
