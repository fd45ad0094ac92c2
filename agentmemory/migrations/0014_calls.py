"""Calls counted by the minute, and answers kept for calls that come again."""

from __future__ import annotations

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("agentmemory", "0013_merge_names"),
    ]

    operations = [
        migrations.CreateModel(
            name="CallWindow",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("minute", models.BigIntegerField()),
                ("taken", models.IntegerField()),
                (
                    "token",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="agentmemory.token"
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("token", "minute"), name="call_window_unique")],
            },
        ),
        migrations.CreateModel(
            name="StoredAnswer",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.CharField(max_length=255)),
                ("digest", models.CharField(max_length=64)),
                ("status", models.PositiveSmallIntegerField()),
                ("content_type", models.CharField(blank=True, max_length=100)),
                ("body", models.BinaryField(default=b"")),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), db_index=True),
                ),
                (
                    "token",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="agentmemory.token"
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("token", "key"), name="stored_answer_key_unique")],
            },
        ),
    ]
