"""How the console calls these rows. Nothing in the database changes."""

from __future__ import annotations

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("distillation", "0004_pass_order"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="cursor",
            options={
                "ordering": ["due_since", "id"],
                "verbose_name": "session's distillation",
                "verbose_name_plural": "waiting",
            },
        ),
        migrations.AlterModelOptions(
            name="distillationpass",
            options={"ordering": ["-id"], "verbose_name": "pass", "verbose_name_plural": "passes"},
        ),
        migrations.AlterModelOptions(
            name="quarantine",
            options={"ordering": ["-id"], "verbose_name": "quarantined message", "verbose_name_plural": "quarantine"},
        ),
    ]
