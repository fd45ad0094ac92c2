"""Indexes in the orders of the operators' lists, and by what they search for. Built beside the traffic."""

from __future__ import annotations

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("distillation", "0006_cursor_lag"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="cursor", index=models.Index(fields=["due_since", "id"], name="cursor_longest_due")
        ),
        AddIndexConcurrently(
            model_name="distillationpass",
            index=models.Index(fields=["-id"], condition=Q(outcome="failed"), name="pass_failed"),
        ),
        AddIndexConcurrently(
            model_name="distillationpass",
            index=models.Index(fields=["session_name"], opclasses=["varchar_pattern_ops"], name="pass_session_begins"),
        ),
    ]
