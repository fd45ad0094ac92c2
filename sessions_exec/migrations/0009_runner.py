"""What the runner of this service notes of a session, and the calls that it makes."""

from __future__ import annotations

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

KEYS = [
    ("modelcall_session_in_space", "session", "SET NULL (session_id)"),
    ("modelcall_agent_in_space", "agent", "NO ACTION"),
]


def in_space(name: str, target: str, on_delete: str) -> migrations.RunSQL:
    """What a call names lies in its space (T1)."""
    return migrations.RunSQL(
        f"ALTER TABLE sessions_exec_modelcall ADD CONSTRAINT {name} FOREIGN KEY ({target}_id, space_id) "
        f"REFERENCES agentmemory_{target} (id, space_id) ON DELETE {on_delete} NOT VALID",
        f"ALTER TABLE sessions_exec_modelcall DROP CONSTRAINT {name}",
    )


def holds(name: str) -> migrations.RunSQL:
    """Nothing stands in the new table that could be against it."""
    return migrations.RunSQL(f"ALTER TABLE sessions_exec_modelcall VALIDATE CONSTRAINT {name}", migrations.RunSQL.noop)


class Migration(migrations.Migration):
    dependencies = [
        ("agentmemory", "0018_agent_run_here"),
        ("sessions_exec", "0008_webhooks"),
    ]

    operations = [
        migrations.AddField(
            model_name="execution",
            name="asked_at",
            field=models.DateTimeField(
                blank=True, editable=False, help_text="When a task was made that is to run it here.", null=True
            ),
        ),
        migrations.AddField(
            model_name="execution",
            name="own",
            field=models.BooleanField(
                db_default=False,
                default=False,
                editable=False,
                help_text="The runner of this service has begun a turn, and goes on with it.",
            ),
        ),
        migrations.AddField(
            model_name="execution",
            name="waits_for",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                editable=False,
                help_text="Why the runner of this service did not take it up.",
                max_length=500,
            ),
        ),
        migrations.CreateModel(
            name="ModelCall",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("epoch", models.PositiveBigIntegerField(help_text="The execution that asked.")),
                (
                    "purpose",
                    models.CharField(
                        choices=[
                            ("answer", "the next step of the conversation"),
                            ("summary", "a summary of what the model can no longer be shown"),
                        ],
                        max_length=20,
                    ),
                ),
                ("provider_name", models.CharField(max_length=60)),
                ("model", models.CharField(max_length=200)),
                ("input_tokens", models.PositiveBigIntegerField(default=0)),
                ("output_tokens", models.PositiveBigIntegerField(default=0)),
                (
                    "cost",
                    models.DecimalField(
                        blank=True, decimal_places=6, help_text="US dollars.", max_digits=14, null=True
                    ),
                ),
                ("started_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                (
                    "outcome",
                    models.CharField(
                        choices=[("running", "Running"), ("answered", "Answered"), ("failed", "Failed")],
                        default="running",
                        max_length=20,
                    ),
                ),
                ("failure", models.CharField(blank=True, default="", help_text="The kind of failure.", max_length=40)),
                ("error", models.TextField(blank=True, default="")),
                (
                    "agent",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.RESTRICT,
                        related_name="+",
                        to="agentmemory.agent",
                    ),
                ),
                (
                    "provider",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="agentmemory.provider",
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="model_calls",
                        to="agentmemory.session",
                    ),
                ),
                (
                    "space",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.RESTRICT, related_name="+", to="agentmemory.space"
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
                "indexes": [
                    models.Index(fields=["space", "-started_at"], name="model_call_space_newest"),
                    models.Index(fields=["session"], name="model_call_session"),
                    models.Index(fields=["-started_at"], name="model_call_newest"),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("purpose__in", ["answer", "summary"])), name="model_call_purpose_known"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("outcome__in", ["running", "answered", "failed"])),
                        name="model_call_outcome_known",
                    ),
                ],
            },
        ),
        *(in_space(*key) for key in KEYS),
        *(holds(name) for name, *_ in KEYS),
    ]
