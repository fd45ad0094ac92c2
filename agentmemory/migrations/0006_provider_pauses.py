"""An operator's own pause of a provider, and addresses whose host is one word."""

from __future__ import annotations

import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("agentmemory", "0005_history_redaction"),
    ]

    operations = [
        migrations.AddField(
            model_name="provider",
            name="stopped_at",
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        migrations.AddField(
            model_name="provider",
            name="stopped_by",
            field=models.CharField(blank=True, db_default="", default="", editable=False, max_length=300),
        ),
        migrations.AddField(
            model_name="provider",
            name="stopped_reason",
            field=models.CharField(blank=True, db_default="", default="", editable=False, max_length=500),
        ),
        # The same column: only what a form accepts has changed.
        migrations.AlterField(
            model_name="provider",
            name="address",
            field=models.CharField(
                blank=True,
                help_text="http or https; blank: the built-in address of the settings.",
                max_length=500,
                validators=[
                    django.core.validators.RegexValidator(
                        "\\Ahttps?://[^\\s/]", "An address begins with http:// or https://, then a host."
                    )
                ],
            ),
        ),
    ]
