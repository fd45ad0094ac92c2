"""What is kept of calls: how many a token made, and what was answered to those that may come again."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from agentmemory.models.spaces import Token


class CallWindow(models.Model):
    """The calls that processes took for a token from one minute on. A process takes many at a time."""

    token = models.ForeignKey(Token, on_delete=models.CASCADE, related_name="+")
    minute = models.BigIntegerField()
    taken = models.IntegerField()
    refused = models.IntegerField(default=0, db_default=0, help_text="Calls over the limit: at least half of them.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["token", "minute"], name="call_window_unique")]

    def __str__(self) -> str:
        return f"{self.taken} in minute {self.minute}"


class StoredAnswer(models.Model):
    """What was answered to a call that named an idempotency key. The digest tells the call."""

    token = models.ForeignKey(Token, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=255)
    digest = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField()
    content_type = models.CharField(max_length=100, blank=True)
    body = models.BinaryField(default=b"")
    created_at = models.DateTimeField(db_default=Now(), db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["token", "key"], name="stored_answer_key_unique")]

    def __str__(self) -> str:
        return f"{self.status} to {self.key}"
