"""What the runner of this service asked of models, and what it cost."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q, Sum
from django.db.models.functions import Coalesce, Now

from agentmemory.models import Agent, Provider, Session, Space


class ModelCallQuerySet(models.QuerySet["ModelCall"]):
    def tokens_since(self, space: Space, moment: object) -> int:
        """Tokens in and out that runs used in a space since a moment, failures included."""
        calls = self.filter(space=space, started_at__gte=moment)
        return int(calls.aggregate(n=Coalesce(Sum(F("input_tokens") + F("output_tokens")), 0))["n"])


class ModelCall(models.Model):
    """One call of a model for one step of a run: exactly one request. It stays when its session goes.

    Holds nothing of what was said. A call that is `running` and whose execution has ended was cut off with its process.
    """

    class Purpose(models.TextChoices):
        ANSWER = "answer", "the next step of the conversation"
        SUMMARY = "summary", "a summary of what the model can no longer be shown"

    class Outcome(models.TextChoices):
        RUNNING = "running"
        ANSWERED = "answered"
        FAILED = "failed"

    id = models.BigAutoField(primary_key=True)
    space = models.ForeignKey(Space, on_delete=models.RESTRICT, related_name="+")
    agent = models.ForeignKey(Agent, on_delete=models.RESTRICT, related_name="+", db_constraint=False)
    session = models.ForeignKey(
        Session, on_delete=models.SET_NULL, null=True, related_name="model_calls", db_constraint=False
    )
    epoch = models.PositiveBigIntegerField(help_text="The execution that asked.")
    purpose = models.CharField(max_length=20, choices=Purpose)
    provider = models.ForeignKey(Provider, on_delete=models.SET_NULL, null=True, related_name="+")
    provider_name = models.CharField(max_length=60)
    model = models.CharField(max_length=200)
    input_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    cost = models.DecimalField(max_digits=14, decimal_places=6, null=True, blank=True, help_text="US dollars.")
    started_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True, blank=True)
    outcome = models.CharField(max_length=20, choices=Outcome, default=Outcome.RUNNING)
    failure = models.CharField(max_length=40, blank=True, default="", help_text="The kind of failure.")
    error = models.TextField(blank=True, default="")

    objects = ModelCallQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(condition=Q(purpose__in=["answer", "summary"]), name="model_call_purpose_known"),
            models.CheckConstraint(
                condition=Q(outcome__in=["running", "answered", "failed"]), name="model_call_outcome_known"
            ),
        ]
        indexes = [
            models.Index(fields=["space", "-started_at"], name="model_call_space_newest"),
            models.Index(fields=["session"], name="model_call_session"),
            models.Index(fields=["-started_at"], name="model_call_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.pk}"
