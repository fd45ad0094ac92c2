"""Tries to sign in, counted."""

from __future__ import annotations

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("agentmemory", "0016_token_limits"),
    ]

    operations = [
        migrations.CreateModel(
            name="LoginTries",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "kind",
                    models.CharField(
                        choices=[("account", "Account"), ("address", "Address"), ("both", "account from an address")],
                        max_length=10,
                    ),
                ),
                ("subject", models.CharField(max_length=300)),
                ("tries", models.PositiveBigIntegerField()),
                ("since", models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), db_index=True)),
            ],
            options={
                "verbose_name_plural": "sign-ins",
                "constraints": [
                    models.UniqueConstraint(fields=("kind", "subject"), name="login_tries_unique"),
                    models.CheckConstraint(
                        condition=models.Q(("kind__in", ["account", "address", "both"])), name="login_tries_kind_known"
                    ),
                ],
            },
        ),
    ]
