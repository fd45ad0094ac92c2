from django.db import migrations


class Migration(migrations.Migration):
    """The queue is asked for its oldest task several times a second: not by sorting all that wait."""

    dependencies = [
        ("sessions_exec", "0002_task_run_delivery"),
        ("django_q", "0017_task_cluster_alter"),
    ]

    operations = [
        migrations.RunSQL(
            "CREATE INDEX IF NOT EXISTS agentmemory_queue_oldest ON django_q_ormq (key, lock, id)",
            "DROP INDEX IF EXISTS agentmemory_queue_oldest",
        ),
    ]
