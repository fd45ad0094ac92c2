"""An index by which the passes of the last days are found. Built beside the traffic: passes go on meanwhile."""

from __future__ import annotations

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("distillation", "0003_quarantine_retry"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="distillationpass",
            index=models.Index(fields=["-started_at"], name="pass_newest"),
        ),
    ]
