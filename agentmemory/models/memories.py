"""What is remembered, what each memory rests on, how often it was used, and every version it had."""

from __future__ import annotations

import uuid
from functools import reduce
from operator import or_

import pghistory
import pgtrigger
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVectorField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Length, Now
from django.db.models.lookups import LessThanOrEqual

from agentmemory.models.spaces import Agent, Space
from agentmemory.models.transcripts import Message, Session
from agentmemory.querysets import memories as querysets

KEY_LENGTH = 200
CONTENT_LENGTH = 10_000
CONTEXT_LENGTH = 4_000
TAG_COUNT = 50
TAG_LENGTH = 50

# M2, held by the database: what nobody stands for leaves curated memories as they are. The search index is derived.
_CURATED_GUARD = """
IF current_setting('agentmemory.author', true) ~ '^(agent|operator|space):'
   OR current_setting('agentmemory.purge', true) = 'on' THEN
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
END IF;
IF TG_OP = 'UPDATE' AND to_jsonb(NEW) - 'search' = to_jsonb(OLD) - 'search' THEN RETURN NEW; END IF;
RAISE EXCEPTION 'a curated memory is changed by a person or an agent alone'
    USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'memory_curated_guard';
"""

# M9, held by the database: merges stay among the distilled memories of one owner and never run in a circle; what is
# left out for a curated memory has that one in view.
_LINK_GUARD = """
IF NEW.merged_into_id IS NOT NULL AND (TG_OP = 'INSERT' OR NEW.merged_into_id IS DISTINCT FROM OLD.merged_into_id) THEN
    IF NOT EXISTS (
        SELECT FROM agentmemory_memory AS survivor WHERE survivor.id = NEW.merged_into_id AND survivor.id <> NEW.id
            AND survivor.origin = NEW.origin AND survivor.owner_id IS NOT DISTINCT FROM NEW.owner_id
    ) OR EXISTS (
        WITH RECURSIVE further AS (
            SELECT id, merged_into_id FROM agentmemory_memory WHERE id = NEW.merged_into_id
            UNION
            SELECT m.id, m.merged_into_id FROM agentmemory_memory AS m JOIN further ON m.id = further.merged_into_id
        ) SELECT FROM further WHERE id = NEW.id
    ) THEN
        RAISE EXCEPTION 'a memory is merged into another one of its owner and origin alone'
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'memory_merge_within_owner';
    END IF;
END IF;
IF TG_OP = 'UPDATE' AND (NEW.content, NEW.owner_id) IS DISTINCT FROM (OLD.content, OLD.owner_id)
    AND NEW.repeats_id IS NOT DISTINCT FROM OLD.repeats_id THEN
    NEW.repeats_id := NULL;
END IF;
IF NEW.repeats_id IS NOT NULL AND (TG_OP = 'INSERT' OR NEW.repeats_id IS DISTINCT FROM OLD.repeats_id)
    AND NOT EXISTS (
        SELECT FROM agentmemory_memory AS curated WHERE curated.id = NEW.repeats_id AND curated.origin = 'curated'
            AND (curated.owner_id IS NULL OR curated.owner_id = NEW.owner_id)
    ) THEN
    RAISE EXCEPTION 'a memory repeats a curated one of its owner, or a shared one'
        USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'memory_repeats_in_view';
END IF;
RETURN NEW;
"""
# What a curated memory no longer says, or no longer says for everybody who saw it, is found again where it is repeated.
_UNLINK = """
UPDATE agentmemory_memory SET repeats_id = NULL, version = version + 1, updated_at = now() WHERE repeats_id = NEW.id;
RETURN NULL;
"""
_SAYS_OTHERWISE = ("content", "owner", "expires_at", "deleted_at", "withdrawn_at")


def _changed(*fields: str) -> pgtrigger.Q:
    """That one of these columns is another after an update."""
    changes = [pgtrigger.Q(**{f"old__{field}__df": pgtrigger.F(f"new__{field}")}) for field in fields]
    return reduce(or_, changes)


class Memory(models.Model):  # type: ignore[django-manager-missing]  # the event model is made by pghistory
    """One statement kept under a key, private to its owner or, without one, shared in its space.

    Curated and distilled memories of one key live side by side (M1). A row is never overwritten without a version
    kept (M5), and a curated one never by anything automatic (M2): both are triggers, so no path escapes.
    """

    class Origin(models.TextChoices):
        CURATED = "curated"
        DISTILLED = "distilled"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    space = models.ForeignKey(Space, on_delete=models.RESTRICT, related_name="memories")
    owner = models.ForeignKey(
        Agent, on_delete=models.RESTRICT, null=True, blank=True, related_name="memories", db_constraint=False
    )
    origin = models.CharField(max_length=20, choices=Origin)
    key = models.CharField(max_length=KEY_LENGTH)
    content = models.TextField()
    tags = ArrayField(models.CharField(max_length=TAG_LENGTH), default=list, blank=True)
    context = models.TextField(
        blank=True, default="", help_text="Text that helps to find it and is not part of it (M7)."
    )
    importance = models.FloatField(default=0.5, help_text="0 to 1.")
    pinned = models.BooleanField(default=False)
    version = models.PositiveIntegerField(default=1, editable=False)
    created_by = models.CharField(max_length=300, editable=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    updated_at = models.DateTimeField(db_default=Now(), editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True, editable=False)
    withdrawn_at = models.DateTimeField(null=True, blank=True, editable=False)
    withdrawn_by = models.CharField(max_length=300, blank=True, default="", editable=False)
    withdrawn_reason = models.CharField(max_length=500, blank=True, default="", editable=False)
    edited_by = models.CharField(
        max_length=300,
        blank=True,
        default="",
        editable=False,
        help_text="The person who set the content of a distilled memory by hand: no pass changes it from then on.",
    )
    merged_into = models.ForeignKey(
        "self",
        on_delete=models.RESTRICT,
        null=True,
        editable=False,
        related_name="merged",
        db_constraint=False,
        db_index=False,
        help_text="The memory that says the same and stands for this one (M9).",
    )
    repeats = models.ForeignKey(
        "self",
        on_delete=models.SET_NULL,
        null=True,
        editable=False,
        related_name="repeated_by",
        db_constraint=False,
        db_index=False,
        help_text="The curated memory that says the same: this one is left out of search and context (M9).",
    )
    search = SearchVectorField(null=True, editable=False)

    objects = querysets.MemoryQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "memories"
        ordering = ["-updated_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["space", "owner", "origin", "key"],
                condition=Q(deleted_at__isnull=True),
                nulls_distinct=False,
                name="memory_key_unique",
            ),
            models.UniqueConstraint(fields=["id", "space"], name="memory_id_space"),
            models.CheckConstraint(condition=Q(origin__in=["curated", "distilled"]), name="memory_origin_known"),
            models.CheckConstraint(condition=~Q(key="") & ~Q(content=""), name="memory_not_blank"),
            models.CheckConstraint(
                condition=LessThanOrEqual(Length("content"), CONTENT_LENGTH), name="memory_content_length"
            ),
            models.CheckConstraint(
                condition=LessThanOrEqual(Length("context"), CONTEXT_LENGTH), name="memory_context_length"
            ),
            models.CheckConstraint(condition=Q(tags__len__lte=TAG_COUNT), name="memory_tag_count"),
            models.CheckConstraint(condition=Q(importance__gte=0) & Q(importance__lte=1), name="memory_importance"),
            models.CheckConstraint(condition=Q(version__gte=1), name="memory_version_from_one"),
            models.CheckConstraint(
                condition=Q(merged_into__isnull=True, repeats__isnull=True) | Q(origin="distilled"),
                name="memory_linked_is_distilled",
            ),
        ]
        indexes = [
            GinIndex(fields=["search"], name="memory_search"),
            models.Index(
                fields=["space", "owner", "-updated_at", "-id"],
                condition=Q(deleted_at__isnull=True),
                name="memory_newest",
            ),
            GinIndex(fields=["tags"], name="memory_tags"),
            # The operators' list, over all spaces.
            models.Index(fields=["-updated_at", "-id"], name="memory_newest_of_all"),
            # The few of them that such a list is often asked for.
            models.Index(fields=["-updated_at", "-id"], condition=Q(origin="curated"), name="memory_newest_curated"),
            models.Index(
                fields=["-updated_at", "-id"], condition=Q(withdrawn_at__isnull=False), name="memory_newest_withdrawn"
            ),
            models.Index(
                fields=["-updated_at", "-id"], condition=Q(deleted_at__isnull=False), name="memory_newest_deleted"
            ),
            models.Index(fields=["-updated_at", "-id"], condition=Q(pinned=True), name="memory_newest_pinned"),
            models.Index(fields=["expires_at"], condition=Q(expires_at__isnull=False), name="memory_expiring"),
            # By its key alone, whole or from its beginning.
            models.Index(fields=["key"], opclasses=["varchar_pattern_ops"], name="memory_key_begins"),
            # What is written in a day, counted from the index.
            models.Index(fields=["created_at", "origin"], name="memory_written"),
            models.Index(fields=["merged_into"], condition=Q(merged_into__isnull=False), name="memory_merged"),
            models.Index(fields=["repeats"], condition=Q(repeats__isnull=False), name="memory_repeats"),
        ]

        triggers = [
            pgtrigger.Trigger(
                name="curated_guard",
                operation=pgtrigger.Update | pgtrigger.Delete,
                when=pgtrigger.Before,
                condition=pgtrigger.Q(old__origin="curated"),
                func=_CURATED_GUARD,
            ),
            pgtrigger.Trigger(
                name="link_guard",
                operation=pgtrigger.Insert | pgtrigger.Update,
                when=pgtrigger.Before,
                func=_LINK_GUARD,
            ),
            pgtrigger.Trigger(
                name="unlink_repeats",
                operation=pgtrigger.Update,
                when=pgtrigger.After,
                condition=pgtrigger.Q(old__origin="curated") & _changed(*_SAYS_OTHERWISE),
                func=_UNLINK,
            ),
        ]

    def __str__(self) -> str:
        return self.key


_UNLESS_PURGED = "IF current_setting('agentmemory.purge', true) = 'on' THEN RETURN {row}; END IF; "


class MemoryEvent(
    pghistory.create_event_model(  # type: ignore[misc]
        Memory,
        pghistory.InsertEvent("written"),
        pghistory.UpdateEvent("changed"),
        pghistory.DeleteEvent("purged"),
        exclude=["search"],
        model_name="BaseMemoryEvent",
        obj_field=pghistory.ObjForeignKey(
            on_delete=models.DO_NOTHING, db_constraint=False, related_name="events", db_index=True
        ),
        context_field=pghistory.ContextJSONField(),
        context_id_field=None,
        abstract=True,
    )
):
    """One version of a memory, written by the database itself, with who wrote it and why (M5)."""

    class Meta:
        ordering = ["pgh_id"]
        triggers = [
            pgtrigger.Trigger(
                name="history_refuses_update",
                operation=pgtrigger.Update,
                when=pgtrigger.Before,
                func=_UNLESS_PURGED.format(row="NEW") + "RAISE EXCEPTION 'the history of memories is never changed';",
            ),
            pgtrigger.Trigger(
                name="history_refuses_delete",
                operation=pgtrigger.Delete,
                when=pgtrigger.Before,
                func=_UNLESS_PURGED.format(row="OLD")
                + "RAISE EXCEPTION 'the history of memories is deleted by a purge alone';",
            ),
        ]


class MemorySource(models.Model):
    """One message that a distilled memory rests on, with the words it was taken from (D10).

    The session's name, the uid and the number stay when the message goes: a memory is never without its trail.
    """

    id = models.BigAutoField(primary_key=True)
    space = models.ForeignKey(Space, on_delete=models.RESTRICT, related_name="+", db_constraint=False)
    memory = models.ForeignKey(Memory, on_delete=models.CASCADE, related_name="sources", db_constraint=False)
    session = models.ForeignKey(
        Session, on_delete=models.SET_NULL, null=True, related_name="memory_sources", db_constraint=False
    )
    message = models.ForeignKey(
        Message, on_delete=models.SET_NULL, null=True, related_name="memory_sources", db_constraint=False
    )
    session_name = models.CharField(max_length=200)
    uid = models.CharField(max_length=200)
    seq = models.PositiveBigIntegerField()
    quote = models.TextField(blank=True, default="")
    verified = models.BooleanField(default=False, help_text="Whether the quote occurs in its message.")
    pass_id = models.BigIntegerField(null=True, help_text="The distillation pass that cited it.")
    version = models.PositiveIntegerField(default=1, help_text="The memory's version that it supports.")
    came_with = models.UUIDField(
        null=True, editable=False, help_text="The memory that brought it when it was merged into this one (M9)."
    )
    gone_at = models.DateTimeField(null=True, blank=True, help_text="When its message was taken back.")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ["memory_id", "seq"]
        constraints = [
            models.UniqueConstraint(fields=["memory", "version", "session_name", "uid"], name="memory_source_once"),
        ]
        indexes = [
            models.Index(fields=["session_name"], name="source_session_name"),
            models.Index(fields=["memory"], condition=Q(verified=False), name="source_unverified"),
        ]

    def __str__(self) -> str:
        return f"{self.session_name}#{self.seq}"


class MemoryAccess(models.Model):
    """One use of a memory by an agent, not yet added up (M6). Rows are only inserted, so no reader waits."""

    id = models.BigAutoField(primary_key=True)
    memory = models.ForeignKey(Memory, on_delete=models.CASCADE, related_name="accesses")
    at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name_plural = "memory accesses"


class MemoryUsage(models.Model):
    """How often a memory was used, added up from its accesses by the upkeep (M6)."""

    memory = models.OneToOneField(Memory, on_delete=models.CASCADE, primary_key=True, related_name="usage")
    count = models.PositiveBigIntegerField(default=0)
    last_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "memory usage"
