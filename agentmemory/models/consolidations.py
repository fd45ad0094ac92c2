"""What consolidation did, so that each of it can be undone, and what it has looked at already (M9)."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from agentmemory.models.memories import TAG_LENGTH, Memory
from agentmemory.models.spaces import Space


class Consolidation(models.Model):
    """One memory that was merged into another, linked to a curated one, or forgotten. It holds no content.

    What was undone is not done again: `undone_at` keeps the two apart for good.
    """

    class Kind(models.TextChoices):
        MERGE = "merge", "merged"
        LINK = "link", "linked"
        FORGET = "forget", "forgotten"

    id = models.BigAutoField(primary_key=True)
    space = models.ForeignKey(Space, on_delete=models.RESTRICT, related_name="+", db_constraint=False)
    kind = models.CharField(max_length=20, choices=Kind)
    memory = models.ForeignKey(Memory, on_delete=models.CASCADE, related_name="consolidations", db_constraint=False)
    other = models.ForeignKey(
        Memory,
        on_delete=models.CASCADE,
        null=True,
        related_name="+",
        db_constraint=False,
        help_text="The memory that stands for it; none for one that was forgotten.",
    )
    why = models.CharField(max_length=300)
    author = models.CharField(max_length=300)
    reason = models.CharField(max_length=500, blank=True, default="")
    tags_added = ArrayField(
        models.CharField(max_length=TAG_LENGTH), default=list, help_text="Tags that the other one got by it."
    )
    at = models.DateTimeField(db_default=Now())
    undone_at = models.DateTimeField(null=True, blank=True)
    undone_by = models.CharField(max_length=300, blank=True, default="")
    undone_reason = models.CharField(max_length=500, blank=True, default="")

    class Meta:
        verbose_name = "merge or withdrawal"
        verbose_name_plural = "merges and withdrawals"
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(condition=Q(kind__in=["merge", "link", "forget"]), name="consolidation_kind_known"),
            models.CheckConstraint(
                condition=Q(kind="forget", other__isnull=True) | Q(~Q(kind="forget"), other__isnull=False),
                name="consolidation_other_named",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.memory_id}"


class ConsolidationLook(models.Model):
    """The version of a memory whose neighbours were looked at: what has not changed is not compared again."""

    memory = models.OneToOneField(Memory, on_delete=models.CASCADE, primary_key=True, related_name="looked_at")
    version = models.PositiveIntegerField()

    class Meta:
        verbose_name = "look of consolidation"
        verbose_name_plural = "looks of consolidation"
