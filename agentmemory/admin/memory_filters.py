"""What narrows the list of memories."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from agentmemory.admin import filters
from agentmemory.models import MemorySource


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
        unused = Q(access_count=0)
        return queryset.filter(unused) if value == "never" else queryset.exclude(unused) if value else queryset


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
            return queryset.filter(pk__in=MemorySource.objects.filter(verified=False).values("memory"))
        if value == "pinned":
            return queryset.filter(pinned=True)
        return queryset.filter(expires_at__isnull=False) if value == "expiring" else queryset


class FromSession(filters.WordFilter):
    title = "session"
    parameter_name = "session"
    field = "session_name"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = (self.value() or "").strip()
        if not value:
            return queryset
        return queryset.filter(pk__in=MemorySource.objects.filter(session_name=value).values("memory"))
