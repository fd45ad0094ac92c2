"""What passes keep, and for how long (D25)."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.utils import timezone

from distillation.models import DistillationPass

ROWS_AT_ONCE = 5_000


def forget_answers() -> str:
    """Empty the answers that are older than `AGENTMEMORY_KEEP_ANSWERS` seconds; the rest of their row stays."""
    old = timezone.now() - timedelta(seconds=settings.AGENTMEMORY_KEEP_ANSWERS)
    rows = DistillationPass.objects.filter(answered_at__lt=old).exclude(answer="")
    ended = rows.exclude(outcome=DistillationPass.Outcome.RUNNING).order_by("pk").values("pk")[:ROWS_AT_ONCE]
    return f"{DistillationPass.objects.filter(pk__in=ended).update(answer='')} answers forgotten"
