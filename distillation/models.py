"""How far each session has been distilled, and every attempt at it."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from agentmemory.models import Agent, Provider, Session, Space
from distillation import querysets
from sessions_exec.leases import Lease


class Cursor(Lease):
    """How far one session has been distilled (`position`), and how far it may be (`watermark`).

    It is a lease: one pass at a time, over any number of machines (D14). It goes with its session (R7).
    """

    session = models.OneToOneField(Session, on_delete=models.CASCADE, related_name="cursor", db_constraint=False)
    space = models.ForeignKey(Space, on_delete=models.RESTRICT, related_name="+", db_constraint=False)
    agent = models.ForeignKey(Agent, on_delete=models.RESTRICT, related_name="cursors", db_constraint=False)
    position = models.PositiveBigIntegerField(default=0, help_text="The last message that was looked at; 0: none.")
    watermark = models.PositiveBigIntegerField(default=0, help_text="The last message that may be read now (D3).")
    failures = models.PositiveIntegerField(default=0, help_text="Failures since the last success.")
    window_failures = models.PositiveIntegerField(
        default=0, help_text="Those of them that the window may be the cause of (D20)."
    )
    single_failures = models.PositiveIntegerField(
        default=0, help_text="Failures of a window of one message: at AGENTMEMORY_QUARANTINE_AFTER it is quarantined."
    )
    attempts = models.PositiveIntegerField(
        default=0, help_text="Attempts begun since the last end of one: counted before the work (D22)."
    )
    window_limit = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Messages of the next window while it is halved; empty: the full budget.",
    )
    retry_seq = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="A message released from quarantine, to be tried again alone."
    )
    next_attempt_at = models.DateTimeField(null=True, blank=True)
    last_error = models.TextField(blank=True, default="")
    last_success_at = models.DateTimeField(null=True, blank=True)
    waits_for = models.CharField(
        max_length=500,
        blank=True,
        default="",
        help_text="Why it is blocked or skipped, from the last look at it.",
    )
    requested_at = models.DateTimeField(null=True, blank=True, help_text="Somebody asked for a pass now.")
    enqueued_at = models.DateTimeField(null=True, blank=True, help_text="When a task was last made for it.")
    due_since = models.DateTimeField(null=True, blank=True, help_text="When the oldest turn that waits was finished.")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    objects = querysets.CursorQuerySet.as_manager()

    class Meta:
        verbose_name = "session's distillation"
        verbose_name_plural = "waiting"
        ordering = ["due_since", "id"]
        constraints = [
            # Makes the epoch part of a key, which is what lets renewals pass a fence (see `leases`).
            models.UniqueConstraint(fields=["id", "epoch"], name="cursor_id_epoch"),
            models.CheckConstraint(condition=Q(position__lte=F("watermark")), name="cursor_position_within_watermark"),
        ]
        indexes = [
            # What is due is found by what is due, not by what exists (D22).
            models.Index(fields=["next_attempt_at"], condition=querysets.LAGGING, name="cursor_lagging"),
            models.Index(fields=["retry_seq"], condition=Q(retry_seq__isnull=False), name="cursor_retry"),
            models.Index(fields=["requested_at"], condition=Q(requested_at__isnull=False), name="cursor_requested"),
            models.Index(fields=["space", "agent"], name="cursor_space_agent"),
            # The operators' list: what has waited longest comes first.
            models.Index(fields=["due_since", "id"], name="cursor_longest_due"),
        ]

    def __str__(self) -> str:
        return f"{self.session_id}"

    @property
    def lag(self) -> int:
        """Messages that may be read and were not looked at yet."""
        return self.watermark - self.position


class DistillationPass(models.Model):
    """One attempt at one window (D25). It stays when its session goes.

    A pass is a pure function of its window, prompt version and model: the prompt is made again from `shown`, `known`
    and `fence`, and applying the stored answer again gives the same rows.
    """

    class Outcome(models.TextChoices):
        RUNNING = "running"
        APPLIED = "applied"
        EMPTY = "empty"
        FAILED = "failed"

    id = models.BigAutoField(primary_key=True)
    space = models.ForeignKey(Space, on_delete=models.RESTRICT, related_name="passes")
    agent = models.ForeignKey(Agent, on_delete=models.RESTRICT, related_name="passes", db_constraint=False)
    cursor = models.ForeignKey(Cursor, on_delete=models.SET_NULL, null=True, related_name="passes")
    session = models.ForeignKey(
        Session, on_delete=models.SET_NULL, null=True, related_name="passes", db_constraint=False
    )
    session_name = models.CharField(max_length=200)
    epoch = models.PositiveBigIntegerField(help_text="The lease it ran under.")
    worker = models.CharField(max_length=200, blank=True, default="")
    start = models.PositiveBigIntegerField(help_text="The position it started from.")
    end = models.PositiveBigIntegerField(help_text="The position it moves to when it is applied.")
    shown = models.JSONField(default=list, help_text="The numbers of the messages that were shown.")
    full = models.BooleanField(default=False, help_text="Whether more waited behind the window.")
    fence = models.CharField(max_length=100, blank=True, default="")
    known = models.JSONField(default=list, help_text="The memories shown as known: pairs of id and version.")
    provider = models.ForeignKey(Provider, on_delete=models.SET_NULL, null=True, related_name="passes")
    provider_name = models.CharField(max_length=60, blank=True, default="")
    model = models.CharField(max_length=200, blank=True, default="")
    extractor = models.CharField(max_length=60, blank=True, default="")
    prompt_version = models.CharField(max_length=20, blank=True, default="")
    input_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    cost = models.DecimalField(max_digits=14, decimal_places=6, null=True, blank=True, help_text="US dollars.")
    started_at = models.DateTimeField(db_default=Now())
    answered_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    answer = models.TextField(
        blank=True, default="", help_text="As it came; emptied after AGENTMEMORY_KEEP_ANSWERS seconds."
    )
    written = models.JSONField(
        default=list, help_text="What became memories: key, memory, version, created/updated/known."
    )
    refused = models.JSONField(default=list, help_text="Candidates that were refused, each with its reason.")
    outcome = models.CharField(max_length=20, choices=Outcome, default=Outcome.RUNNING)
    failure = models.CharField(max_length=40, blank=True, default="", help_text="The kind of failure.")
    error = models.TextField(blank=True, default="")

    objects = querysets.PassQuerySet.as_manager()

    class Meta:
        verbose_name = "pass"
        verbose_name_plural = "passes"
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(outcome__in=["running", "applied", "empty", "failed"]), name="pass_outcome_known"
            ),
            models.CheckConstraint(condition=Q(start__lte=F("end")), name="pass_window_forward"),
            # A message is applied exactly once: no two passes of one cursor may have moved it from one place (D1).
            models.UniqueConstraint(fields=["cursor", "epoch"], name="pass_one_per_lease"),
        ]
        indexes = [
            models.Index(fields=["space", "-started_at"], name="pass_space_newest"),
            models.Index(fields=["cursor", "outcome"], name="pass_cursor_outcome"),
            # What was spent in the last days, over all spaces.
            models.Index(fields=["-started_at"], name="pass_newest"),
            # The operators' lists: those that failed, and those of a session by the beginning of its name.
            models.Index(fields=["-id"], condition=Q(outcome="failed"), name="pass_failed"),
            models.Index(fields=["session_name"], opclasses=["varchar_pattern_ops"], name="pass_session_begins"),
        ]

    def __str__(self) -> str:
        return f"{self.pk}"

    @property
    def seconds(self) -> float | None:
        """How long it took, from its begin to its end."""
        return (self.finished_at - self.started_at).total_seconds() if self.finished_at else None


class Quarantine(models.Model):
    """One message that failed alone, again and again: left out, visibly, so that the position goes on (D20)."""

    class State(models.TextChoices):
        HELD = "held", "left out until somebody decides"
        RELEASED = "released", "to be tried again"
        SETTLED = "settled", "distilled after its release"
        DISMISSED = "dismissed", "left out for good"

    id = models.BigAutoField(primary_key=True)
    space = models.ForeignKey(Space, on_delete=models.RESTRICT, related_name="+", db_constraint=False)
    agent = models.ForeignKey(Agent, on_delete=models.RESTRICT, related_name="+", db_constraint=False)
    cursor = models.ForeignKey(Cursor, on_delete=models.CASCADE, related_name="quarantines")
    uid = models.CharField(max_length=200)
    seq = models.PositiveBigIntegerField()
    state = models.CharField(max_length=20, choices=State, default=State.HELD)
    failures = models.PositiveIntegerField(default=0)
    error = models.TextField(blank=True, default="", help_text="What the last failure said.")
    decided_by = models.CharField(max_length=300, blank=True, default="")
    decided_reason = models.CharField(max_length=500, blank=True, default="")
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    decided_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "quarantined message"
        verbose_name_plural = "quarantine"
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["cursor", "seq"], name="quarantine_message_once"),
            models.CheckConstraint(
                condition=Q(state__in=["held", "released", "settled", "dismissed"]), name="quarantine_state_known"
            ),
        ]
        indexes = [
            models.Index(fields=["state"], condition=Q(state__in=["held", "released"]), name="quarantine_open"),
        ]

    def __str__(self) -> str:
        return f"{self.uid}"
