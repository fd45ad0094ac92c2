"""What was said: sessions, their messages, and what later messages say about earlier ones."""

from __future__ import annotations

from django.contrib.postgres.indexes import GinIndex, HashIndex
from django.contrib.postgres.search import SearchVectorField
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from agentmemory.models.spaces import Agent, Space
from agentmemory.querysets import transcripts as querysets

session_name_validator = RegexValidator(
    r"\A[A-Za-z0-9._:@-]{1,200}\Z", "Use 1 to 200 of: letters, digits and . _ : @ -"
)


class Session(models.Model):
    """One conversation of one agent. Its numbering is held here, under this row's lock (R1)."""

    space = models.ForeignKey(Space, on_delete=models.RESTRICT, related_name="sessions")
    agent = models.ForeignKey(Agent, on_delete=models.RESTRICT, related_name="sessions", db_constraint=False)
    name = models.CharField(
        max_length=200, validators=[session_name_validator], help_text="The id that clients call it by."
    )
    title = models.CharField(max_length=500, blank=True)
    metadata = models.JSONField(default=dict, blank=True)
    completed_at = models.DateTimeField(null=True, blank=True)
    last_seq = models.PositiveBigIntegerField(default=0, editable=False)
    terminal_seq = models.PositiveBigIntegerField(
        default=0, editable=False, help_text="The last message that ends a turn; 0: none does."
    )
    quiet_since = models.DateTimeField(
        db_default=Now(),
        editable=False,
        help_text="When something was last said; for an imported file, its last record.",
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    updated_at = models.DateTimeField(db_default=Now(), editable=False)

    objects = querysets.SessionQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["agent", "name"], name="session_name_unique_for_agent"),
            models.UniqueConstraint(fields=["id", "space"], name="session_id_space"),
            models.CheckConstraint(condition=Q(terminal_seq__lte=F("last_seq")), name="session_terminal_within_last"),
        ]
        indexes = [
            # By its name alone, whole or from its beginning.
            models.Index(fields=["name"], opclasses=["varchar_pattern_ops"], name="session_name_begins"),
            # Sessions whose tail waits to be finished (R6): few, whatever the number of sessions.
            models.Index(
                fields=["quiet_since"], condition=Q(terminal_seq__lt=F("last_seq")), name="session_unfinished"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Message(models.Model):
    """One entry of a session's transcript, kept as it came but for secrets, NUL and lone surrogates (R3)."""

    class Type(models.TextChoices):
        USER = "user"
        ASSISTANT = "assistant"
        SYSTEM = "system"
        RESULT = "result"

    class Delivery(models.TextChoices):
        CONSUMED = "consumed", "seen by the model"
        ENQUEUED = "enqueued", "not yet seen"
        DEFERRED = "deferred", "held back"
        FAILED = "failed", "never seen"

    id = models.BigAutoField(primary_key=True)
    space = models.ForeignKey(Space, on_delete=models.RESTRICT, related_name="+", db_constraint=False)
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="messages", db_constraint=False)
    seq = models.PositiveBigIntegerField()
    uid = models.CharField(max_length=200)
    type = models.CharField(max_length=20, choices=Type)
    subtype = models.CharField(max_length=100, blank=True, default="")
    content = models.JSONField()
    text = models.TextField(blank=True, default="", help_text="The visible text, taken out once at ingestion (R3).")
    is_speech = models.BooleanField(
        default=False, help_text="Whether it may say something to distillation by its own shape (D4)."
    )
    ends_turn = models.BooleanField(default=False)
    delivery = models.CharField(max_length=20, choices=Delivery, default=Delivery.CONSUMED)
    is_error = models.BooleanField(default=False)
    parent_tool_use_id = models.CharField(max_length=200, blank=True, default="")
    tool_outcomes = models.JSONField(default=dict, blank=True)
    digest = models.CharField(max_length=64, editable=False, help_text="Keyed digest of the content as received (R2).")
    redactions = models.JSONField(default=dict, blank=True, help_text="What was replaced at the door, by kind.")
    superseded_by = models.CharField(max_length=200, blank=True, default="", help_text="The uid that replaces it.")
    retracted_at = models.DateTimeField(null=True, blank=True)
    retraction_reason = models.CharField(max_length=500, blank=True, default="")
    occurred_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    objects = querysets.MessageQuerySet.as_manager()

    class Meta:
        ordering = ["session_id", "seq"]
        constraints = [
            models.UniqueConstraint(fields=["session", "seq"], name="message_seq_unique_in_session"),
            models.UniqueConstraint(fields=["session", "uid"], name="message_uid_unique_in_session"),
            models.UniqueConstraint(fields=["id", "space"], name="message_id_space"),
            models.CheckConstraint(condition=Q(seq__gte=1), name="message_seq_from_one"),
            models.CheckConstraint(
                condition=Q(type__in=["user", "assistant", "system", "result"]), name="message_type_known"
            ),
            models.CheckConstraint(
                condition=Q(delivery__in=["consumed", "enqueued", "deferred", "failed"]),
                name="message_delivery_known",
            ),
        ]
        indexes = [
            # The window's read: speech alone, so that a stretch without any costs nothing (D5).
            models.Index(fields=["session", "seq"], condition=Q(is_speech=True), name="message_speech"),
            models.Index(
                fields=["session", "seq"],
                condition=Q(type="user", delivery__in=["enqueued", "deferred"]),
                name="message_undelivered",
            ),
            models.Index(fields=["session", "seq"], condition=Q(ends_turn=True), name="message_turn_end"),
            # By its uid alone, whatever its session: four bytes a message.
            HashIndex(fields=["uid"], name="message_uid_anywhere"),
        ]

    def __str__(self) -> str:
        return self.uid


class MessageIndex(models.Model):
    """The words of a message that is speech, and of the two before it, for search (M10).

    Made empty by the database itself, and again when any of these words change; filled later.

    Taking a long message apart takes time that an append, which holds its session, does not have.
    """

    # Deleted with its message by the database, for those too who know nothing of it.
    message = models.OneToOneField(
        Message, on_delete=models.CASCADE, primary_key=True, related_name="index", db_constraint=False
    )
    search = SearchVectorField(null=True, editable=False)

    class Meta:
        verbose_name_plural = "message indexes"
        indexes = [
            GinIndex(fields=["search"], name="message_index_search"),
            models.Index(fields=["message"], condition=Q(search__isnull=True), name="message_index_empty"),
        ]

    def __str__(self) -> str:
        return str(self.pk)


class MessageEdge(models.Model):
    """What was said about a message by uid, kept also while its target has not arrived yet (R5)."""

    class Kind(models.TextChoices):
        SUPERSEDES = "supersedes"
        RETRACTS = "retracts"

    space = models.ForeignKey(Space, on_delete=models.RESTRICT, related_name="+", db_constraint=False)
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="edges", db_constraint=False)
    kind = models.CharField(max_length=20, choices=Kind)
    target_uid = models.CharField(max_length=200)
    source_uid = models.CharField(max_length=200, blank=True, default="")
    reason = models.CharField(max_length=500, blank=True, default="")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["session", "kind", "target_uid", "source_uid"], name="message_edge_unique"),
            models.CheckConstraint(condition=Q(kind__in=["supersedes", "retracts"]), name="message_edge_kind_known"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.target_uid}"
