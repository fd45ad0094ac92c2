"""What narrows the list of memories."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from agentmemory.admin import filters
from agentmemory.models import Agent, MemoryAccess, MemorySource, MemoryUsage
from agentmemory.querysets import narrowing


class Standing(filters.ChoiceFilter):
    """Deleted and withdrawn memories are left out unless they are asked for (D23)."""

    title = "standing"
    parameter_name = "standing"
    options = (
        ("withdrawn", "Withdrawn"),
        ("merged", "Merged into another"),
        ("linked", "Linked to a curated one"),
        ("expired", "Expired"),
        ("deleted", "Deleted"),
        ("any", "All, deleted and withdrawn too"),
    )

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value == "any":
            return queryset
        if value == "deleted":
            return queryset.filter(deleted_at__isnull=False)
        kept = queryset.filter(deleted_at__isnull=True)
        if value == "withdrawn":
            return kept.filter(withdrawn_at__isnull=False)
        if value == "merged":
            return kept.filter(merged_into__isnull=False)
        if value == "linked":
            return kept.filter(repeats__isnull=False)
        if value == "expired":
            return kept.filter(expires_at__lte=timezone.now())
        return kept.filter(withdrawn_at__isnull=True)


class Use(filters.ChoiceFilter):
    title = "use"
    parameter_name = "use"
    options = (("never", "Never used"), ("used", "Used"))

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value not in dict(self.options):
            return queryset
        # Only a memory that was used has a row there.
        sets = (
            MemoryUsage.objects.values_list("memory", flat=True),
            MemoryAccess.objects.values_list("memory", flat=True),
        )
        if value == "used":
            return narrowing.among(queryset, *sets)
        return queryset.exclude(pk__in=sets[0]).exclude(pk__in=sets[1])


class Age(filters.ChoiceFilter):
    title = "age"
    parameter_name = "age"
    options = (("1", "Updated in the last day"), ("7", "In the last 7 days"), ("30", "In the last 30 days"))

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value not in dict(self.options):
            return queryset
        return queryset.filter(updated_at__gte=timezone.now() - timedelta(days=int(value)))


class Notice(filters.ChoiceFilter):
    title = "what stands out"
    parameter_name = "notice"
    options = (("unverified", "A quote was not found"), ("pinned", "Pinned"), ("expiring", "Expires"))

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value == "unverified":
            unverified = MemorySource.objects.filter(verified=False)
            return narrowing.among(queryset, unverified.values_list("memory", flat=True))
        if value == "pinned":
            return queryset.filter(pinned=True)
        return queryset.filter(expires_at__isnull=False) if value == "expiring" else queryset


class OwnedBy(filters.WordFilter):
    """With the agent's space, which an index has before the owner."""

    title = "agent"
    parameter_name = "agent"
    field = "owner__handle"

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        agents = list(Agent.objects.filter(handle=value)[: filters.MOST_MEANT])
        if len(agents) == 1:
            return queryset.filter(space=agents[0].space_id, owner=agents[0])
        return queryset.filter(owner__in=agents)


class FromSession(filters.WordFilter):
    title = "session"
    parameter_name = "session"
    field = "session_name"

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        sources = MemorySource.objects.filter(session_name=value)
        return narrowing.among(queryset, sources.values_list("memory", flat=True))
