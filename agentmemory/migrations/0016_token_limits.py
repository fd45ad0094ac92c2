"""Limits of single tokens, and how many of their calls were refused."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("agentmemory", "0015_console_lists"),
    ]

    operations = [
        migrations.AddField(
            model_name="callwindow",
            name="refused",
            field=models.IntegerField(
                db_default=0, default=0, help_text="Calls over the limit: at least half of them."
            ),
        ),
        migrations.AddField(
            model_name="token",
            name="calls_per_minute",
            field=models.PositiveIntegerField(
                blank=True, help_text="Calls in a minute; 0: no limit; empty: the installation's setting.", null=True
            ),
        ),
    ]
