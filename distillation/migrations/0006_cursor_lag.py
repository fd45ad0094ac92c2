"""What is due is found from the few cursors that are behind, and the planner knows how few they are (D22)."""

from __future__ import annotations

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models
from django.db.models.expressions import CombinedExpression
from django.db.models.lookups import GreaterThan


class Migration(migrations.Migration):
    # Beside those who write: the table may hold millions of rows.
    atomic = False
    dependencies = [("distillation", "0005_names")]
    operations = [
        migrations.RunSQL(
            "CREATE STATISTICS distillation_cursor_lag ON (watermark - position) FROM distillation_cursor",
            "DROP STATISTICS IF EXISTS distillation_cursor_lag",
        ),
        AddIndexConcurrently(
            model_name="cursor",
            index=models.Index(
                fields=["next_attempt_at"],
                condition=models.Q(
                    GreaterThan(CombinedExpression(models.F("watermark"), "-", models.F("position")), 0)
                ),
                name="cursor_lagging",
            ),
        ),
        RemoveIndexConcurrently(model_name="cursor", name="cursor_behind"),
    ]
