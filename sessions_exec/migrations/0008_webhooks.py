"""Webhooks and what they are told; and how the console calls regular work."""

import uuid

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("agentmemory", "0015_console_lists"),
        ("sessions_exec", "0007_names"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="tick",
            options={"ordering": ["name"], "verbose_name_plural": "schedules"},
        ),
        migrations.CreateModel(
            name="Webhook",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(help_text="What it is for.", max_length=100)),
                ("url", models.CharField(help_text="Begins with https://.", max_length=500, verbose_name="address")),
                ("events", models.JSONField(default=list, help_text="What it is told of.")),
                ("salt", models.CharField(editable=False, max_length=100)),
                ("old_salt", models.CharField(blank=True, default="", editable=False, max_length=100)),
                (
                    "old_until",
                    models.DateTimeField(
                        editable=False, help_text="How long the secret before is used as well.", null=True
                    ),
                ),
                ("paused_at", models.DateTimeField(editable=False, null=True)),
                ("paused_by", models.CharField(blank=True, default="", editable=False, max_length=300)),
                ("paused_reason", models.CharField(blank=True, default="", editable=False, max_length=500)),
                (
                    "busy_until",
                    models.DateTimeField(
                        editable=False, help_text="A call is under way, or a wait after one.", null=True
                    ),
                ),
                (
                    "failures",
                    models.PositiveIntegerField(default=0, editable=False, help_text="Calls in a row that failed."),
                ),
                ("failing_since", models.DateTimeField(editable=False, null=True)),
                ("last_success_at", models.DateTimeField(editable=False, null=True)),
                (
                    "dropped",
                    models.PositiveIntegerField(
                        default=0, editable=False, help_text="Events it was not told of, since too much waited already."
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False),
                ),
                (
                    "space",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.RESTRICT, related_name="+", to="agentmemory.space"
                    ),
                ),
            ],
            options={
                "ordering": ["space_id", "name"],
            },
        ),
        migrations.CreateModel(
            name="Delivery",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "message",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, help_text="Its id for the receiver.", unique=True
                    ),
                ),
                ("event", models.CharField(max_length=40)),
                (
                    "once",
                    models.CharField(
                        blank=True, default="", help_text="Of what happens once: which it is.", max_length=100
                    ),
                ),
                ("body", models.JSONField(help_text="What is sent: ids and figures.")),
                (
                    "state",
                    models.CharField(
                        choices=[("pending", "on its way"), ("delivered", "Delivered"), ("failed", "given up")],
                        default="pending",
                        max_length=20,
                    ),
                ),
                ("attempts", models.PositiveIntegerField(default=0)),
                (
                    "next_attempt_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), null=True),
                ),
                (
                    "status",
                    models.PositiveSmallIntegerField(help_text="What the last attempt was answered.", null=True),
                ),
                ("error", models.CharField(blank=True, default="", max_length=300)),
                ("seconds", models.FloatField(help_text="How long the last attempt took.", null=True)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False),
                ),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "webhook",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="deliveries",
                        to="sessions_exec.webhook",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "deliveries",
                "ordering": ["-id"],
            },
        ),
        migrations.AddConstraint(
            model_name="webhook",
            constraint=models.UniqueConstraint(fields=("space", "name"), name="webhook_name_unique_in_space"),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                condition=models.Q(("state", "pending")), fields=["webhook", "next_attempt_at"], name="delivery_pending"
            ),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                condition=models.Q(("state", "pending"), _negated=True), fields=["ended_at"], name="delivery_ended"
            ),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(fields=["webhook", "-id"], name="delivery_newest"),
        ),
        migrations.AddConstraint(
            model_name="delivery",
            constraint=models.UniqueConstraint(
                condition=models.Q(("once", ""), _negated=True), fields=("webhook", "once"), name="delivery_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="delivery",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("ended_at__isnull", True), ("next_attempt_at__isnull", False), ("state", "pending")),
                    models.Q(
                        ("ended_at__isnull", False),
                        ("next_attempt_at__isnull", True),
                        ("state__in", ["delivered", "failed"]),
                    ),
                    _connector="OR",
                ),
                name="delivery_ended_or_not",
            ),
        ),
    ]
