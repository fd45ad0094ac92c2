"""What merges and purges are called in the console."""

from __future__ import annotations

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("agentmemory", "0012_message_index_context"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="certificate",
            options={"ordering": ["-id"], "verbose_name": "purge"},
        ),
        migrations.AlterModelOptions(
            name="consolidation",
            options={
                "ordering": ["-id"],
                "verbose_name": "merge or withdrawal",
                "verbose_name_plural": "merges and withdrawals",
            },
        ),
    ]
