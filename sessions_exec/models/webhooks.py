"""Addresses that are told what happens in a space, and what they are told."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from agentmemory.models import Space


class Event(models.TextChoices):
    """What a webhook can be told of."""

    PASS_FINISHED = "pass.finished", "a pass finished"
    PASS_FAILED = "pass.failed", "a pass failed"
    MESSAGE_QUARANTINED = "message.quarantined", "a message came into quarantine"
    BUDGET_REACHED = "budget.reached", "the day's tokens are used up"
    EXECUTION_RECOVERED = "execution.recovered", "an execution was recovered"


# What a test sends, whatever a webhook listens to.
TEST = "webhook.test"


class Webhook(models.Model):
    """One address that hears of its own space alone. The secret is made from `salt` and the installation's key."""

    space = models.ForeignKey(Space, on_delete=models.RESTRICT, related_name="+")
    name = models.CharField(max_length=100, help_text="What it is for.")
    url = models.CharField(max_length=500, verbose_name="address", help_text="Begins with https://.")
    events = models.JSONField(default=list, help_text="What it is told of.")
    salt = models.CharField(max_length=100, editable=False)
    old_salt = models.CharField(max_length=100, blank=True, default="", editable=False)
    old_until = models.DateTimeField(null=True, editable=False, help_text="How long the secret before is used as well.")
    paused_at = models.DateTimeField(null=True, editable=False)
    paused_by = models.CharField(max_length=300, blank=True, default="", editable=False)
    paused_reason = models.CharField(max_length=500, blank=True, default="", editable=False)
    busy_until = models.DateTimeField(null=True, editable=False, help_text="A call is under way, or a wait after one.")
    failures = models.PositiveIntegerField(default=0, editable=False, help_text="Calls in a row that failed.")
    failing_since = models.DateTimeField(null=True, editable=False)
    last_success_at = models.DateTimeField(null=True, editable=False)
    dropped = models.PositiveIntegerField(
        default=0, editable=False, help_text="Events it was not told of, since too much waited already."
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ["space_id", "name"]
        constraints = [models.UniqueConstraint(fields=["space", "name"], name="webhook_name_unique_in_space")]

    def __str__(self) -> str:
        return self.name


class Delivery(models.Model):
    """One event on its way to one webhook, written in the transaction of the event itself. Its id stays the same
    however often it is sent."""

    class State(models.TextChoices):
        PENDING = "pending", "on its way"
        DELIVERED = "delivered"
        FAILED = "failed", "given up"

    id = models.BigAutoField(primary_key=True)
    message = models.UUIDField(default=uuid.uuid4, unique=True, editable=False, help_text="Its id for the receiver.")
    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, related_name="deliveries")
    event = models.CharField(max_length=40)
    once = models.CharField(max_length=100, blank=True, default="", help_text="Of what happens once: which it is.")
    body = models.JSONField(help_text="What is sent: ids and figures.")
    state = models.CharField(max_length=20, choices=State, default=State.PENDING)
    attempts = models.PositiveIntegerField(default=0)
    next_attempt_at = models.DateTimeField(db_default=Now(), null=True)
    status = models.PositiveSmallIntegerField(null=True, help_text="What the last attempt was answered.")
    error = models.CharField(max_length=300, blank=True, default="")
    seconds = models.FloatField(null=True, help_text="How long the last attempt took.")
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "deliveries"
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["webhook", "once"], condition=~Q(once=""), name="delivery_once"),
            models.CheckConstraint(
                condition=Q(state="pending", next_attempt_at__isnull=False, ended_at__isnull=True)
                | Q(state__in=["delivered", "failed"], next_attempt_at__isnull=True, ended_at__isnull=False),
                name="delivery_ended_or_not",
            ),
        ]
        indexes = [
            models.Index(fields=["webhook", "next_attempt_at"], condition=Q(state="pending"), name="delivery_pending"),
            models.Index(fields=["ended_at"], condition=~Q(state="pending"), name="delivery_ended"),
            models.Index(fields=["webhook", "-id"], name="delivery_newest"),
        ]

    def __str__(self) -> str:
        return self.receivers_id

    @property
    def receivers_id(self) -> str:
        """What the receiver knows it by, to drop what comes twice."""
        return f"msg_{self.message.hex}"
