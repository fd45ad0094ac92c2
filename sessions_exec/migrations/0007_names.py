"""How the console calls these rows. Nothing in the database changes."""

from __future__ import annotations

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("sessions_exec", "0006_prompt_kept_once"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="heartbeat",
            options={"ordering": ["-beat_at"], "verbose_name_plural": "task cluster"},
        ),
    ]
