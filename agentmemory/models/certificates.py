"""What was erased for good, on record without any of its content."""

from __future__ import annotations

import pgtrigger
from django.db import models
from django.db.models.functions import Now

from agentmemory.models.spaces import Space


class Certificate(models.Model):
    """One purge: who, when, why, what it was about by ids alone, and how many rows of each table it took or emptied."""

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(db_default=Now())
    who = models.CharField(max_length=300)
    reason = models.CharField(max_length=500)
    space = models.ForeignKey(Space, on_delete=models.DO_NOTHING, null=True, related_name="+", db_constraint=False)
    scope = models.JSONField(default=dict, help_text="Ids of what was to be erased, by kind.")
    counts = models.JSONField(default=dict, help_text="Rows that were deleted or emptied, by table.")

    class Meta:
        verbose_name = "purge"
        ordering = ["-id"]
        triggers = [
            pgtrigger.Protect(name="certificate_stays", operation=pgtrigger.Update | pgtrigger.Delete),
        ]

    def __str__(self) -> str:
        return f"Purge {self.pk}"
