"""An index in the order of the operators' list of memories. Built beside the traffic: writes go on meanwhile."""

from __future__ import annotations

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("agentmemory", "0006_provider_pauses"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="memory",
            index=models.Index(fields=["-updated_at", "-id"], name="memory_newest_of_all"),
        ),
    ]
