"""Every act of every operator."""

from __future__ import annotations

import pgtrigger
from django.db import models
from django.db.models.functions import Now

from agentmemory.models.spaces import Space


class Activity(models.Model):
    """One act: who did what, on what, and why. It is never changed: a purge alone takes names and reasons out of it."""

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(db_default=Now())
    who = models.CharField(max_length=300)
    act = models.CharField(max_length=100)
    space = models.ForeignKey(Space, on_delete=models.DO_NOTHING, null=True, related_name="+", db_constraint=False)
    target_type = models.CharField(max_length=100, blank=True, default="", help_text="As in app_label.model.")
    target_id = models.CharField(max_length=100, blank=True, default="")
    target = models.CharField(max_length=300, blank=True, default="", help_text="What it was called at the time.")
    reason = models.CharField(max_length=500, blank=True, default="")
    detail = models.JSONField(default=dict, blank=True)

    class Meta:
        verbose_name_plural = "activity"
        ordering = ["-id"]
        indexes = [models.Index(fields=["target_type", "target_id"], name="activity_target")]
        triggers = [
            pgtrigger.Trigger(
                name="activity_refuses_update",
                operation=pgtrigger.Update,
                when=pgtrigger.Before,
                func="IF current_setting('agentmemory.purge', true) = 'on' THEN RETURN NEW; END IF; "
                "RAISE EXCEPTION 'activity is never changed';",
            ),
            pgtrigger.Trigger(
                name="activity_refuses_delete",
                operation=pgtrigger.Delete,
                when=pgtrigger.Before,
                func="IF current_setting('agentmemory.purge', true) = 'on' THEN RETURN OLD; END IF; "
                "RAISE EXCEPTION 'activity is deleted by a purge alone';",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.who}: {self.act}"
