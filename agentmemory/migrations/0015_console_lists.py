"""Indexes in the orders of the operators' lists, and by what they search for. Built beside the traffic."""

from __future__ import annotations

from django.contrib.postgres.indexes import HashIndex
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q

NEWEST = ["-updated_at", "-id"]


def _of_memories(index: models.Index) -> AddIndexConcurrently:
    return AddIndexConcurrently(model_name="memory", index=index)


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("agentmemory", "0014_calls"),
    ]

    operations = [
        _of_memories(models.Index(fields=NEWEST, condition=Q(origin="curated"), name="memory_newest_curated")),
        _of_memories(
            models.Index(fields=NEWEST, condition=Q(withdrawn_at__isnull=False), name="memory_newest_withdrawn")
        ),
        _of_memories(models.Index(fields=NEWEST, condition=Q(deleted_at__isnull=False), name="memory_newest_deleted")),
        _of_memories(models.Index(fields=NEWEST, condition=Q(pinned=True), name="memory_newest_pinned")),
        _of_memories(
            models.Index(fields=["expires_at"], condition=Q(expires_at__isnull=False), name="memory_expiring")
        ),
        _of_memories(models.Index(fields=["key"], opclasses=["varchar_pattern_ops"], name="memory_key_begins")),
        _of_memories(models.Index(fields=["created_at", "origin"], name="memory_written")),
        AddIndexConcurrently(
            model_name="memorysource", index=models.Index(fields=["session_name"], name="source_session_name")
        ),
        AddIndexConcurrently(
            model_name="memorysource",
            index=models.Index(fields=["memory"], condition=Q(verified=False), name="source_unverified"),
        ),
        AddIndexConcurrently(model_name="message", index=HashIndex(fields=["uid"], name="message_uid_anywhere")),
        AddIndexConcurrently(
            model_name="session",
            index=models.Index(fields=["name"], opclasses=["varchar_pattern_ops"], name="session_name_begins"),
        ),
    ]
