"""Which agents are run by the runner of this service."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("agentmemory", "0017_login_tries"),
    ]

    operations = [
        migrations.AddField(
            model_name="agent",
            name="run_here",
            field=models.BooleanField(
                db_default=False,
                default=False,
                help_text="Inputs of its sessions are answered by the runner that comes with this service.",
            ),
        ),
        # The same column: only what is said of it has changed.
        migrations.AlterField(
            model_name="space",
            name="daily_tokens",
            field=models.PositiveBigIntegerField(
                blank=True,
                help_text="Tokens that distillation and runs may use here in one UTC day; empty: the installation's setting.",
                null=True,
            ),
        ),
    ]
