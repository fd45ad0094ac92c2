"""Every act of every operator: when, who, what, on what, why."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import Max, QuerySet
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import NoReverseMatch, URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agentmemory.admin import filters
from agentmemory.admin.base import ConsoleList, ReadOnlyAdmin
from agentmemory.console import figures, links, permissions
from agentmemory.models import Activity
from agentmemory.services import acts_of_memories

MOST_ROWS = 50_000
# Words have no index here: so many of the newest acts are looked through.
MOST_SEARCHED = 50_000
_COLUMNS = ("at", "who", "act", "target_type", "target_id", "target", "reason")


CHUNK = 1_000
LEFT_OUT = (
    "Of acts on private memories you see who did what, and when: not what they are called, and not why; nor why "
    "something was done to a session and what is made of it."
)


class _ActivityList(ConsoleList):
    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        if not permissions.reads_private(request):
            self.result_list = acts_of_memories.without_what_is_private(list(self.result_list))


class AgeFilter(filters.ChoiceFilter):
    title = "age"
    parameter_name = "age"
    options = (("1", "In the last day"), ("7", "In the last 7 days"), ("30", "In the last 30 days"))

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value not in dict(self.options):
            return queryset
        return queryset.filter(at__gte=timezone.now() - timedelta(days=int(value)))


class KindFilter(filters.ChoiceFilter):
    title = "kind"
    parameter_name = "kind"
    options = (("acts", "Acts alone"), ("looks", "Looks at private content"))

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value == "looks":
            return queryset.filter(act="look")
        return queryset.exclude(act="look") if value == "acts" else queryset


@admin.register(Activity)
class ActivityAdmin(ReadOnlyAdmin[Activity]):
    list_display = ("when", "who", "act", "on_what", "why", "space")
    list_display_links = None
    list_select_related = ("space",)
    search_fields = ("who", "target", "reason")
    search_help_text = "Words of who, on what and why, in the newest acts"
    ordering = ("-id",)
    list_filter = (KindFilter, AgeFilter, filters.word("who", "who"), filters.word("act", "act"))
    list_before_template = "console/left_out.html"
    list_after_template = "console/activity_csv.html"
    counted = ("act", "acts")
    empty_line = "No operator has done anything yet."

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Activity], search_term: str
    ) -> tuple[QuerySet[Activity], bool]:
        if search_term.strip():
            newest = Activity.objects.aggregate(newest=Max("pk"))["newest"] or 0
            queryset = queryset.filter(pk__gt=newest - MOST_SEARCHED)
            if not permissions.reads_private(request):
                # A search that answers is a way of reading.
                queryset = queryset.exclude(target_type__in=acts_of_memories.hidden())
        return super().get_search_results(request, queryset, search_term)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return _ActivityList

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not permissions.reads_private(request):
            extra_context = {"left_out": LEFT_OUT, **(extra_context or {})}
        return super().changelist_view(request, extra_context)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Activity | None:
        row = super().get_object(request, object_id, from_field)
        if row is not None and not permissions.reads_private(request):
            (row,) = acts_of_memories.without_what_is_private([row])
        return row

    @admin.display(description="When", ordering="id")
    def when(self, row: Activity) -> SafeString:
        return figures.when(row.at)

    @admin.display(description="On what")
    def on_what(self, row: Activity) -> SafeString:
        kind = _kind(row.target_type)
        url = _page(row)
        name = links.anchor(url, row.target) if url else row.target
        return format_html('<span class="am-line">{}</span> {}', kind, name)

    @admin.display(description="Why")
    def why(self, row: Activity) -> SafeString:
        told = row.detail.items() if isinstance(row.detail, dict) else ()
        detail = ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in told)
        return format_html('{}<span class="am-first">{}</span>', row.reason or figures.NONE, detail[:300])

    def get_urls(self) -> list[URLPattern]:
        route = path("csv/", self.admin_site.admin_view(self.csv_view), name="agentmemory_activity_csv")
        return [route, *super().get_urls()]

    def csv_view(self, request: HttpRequest) -> StreamingHttpResponse | HttpResponse:
        """The newest acts as a file, streamed."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        rows = Activity.objects.order_by("-id")[:MOST_ROWS].iterator(chunk_size=CHUNK)
        answer = StreamingHttpResponse(
            _lines(rows, private=permissions.reads_private(request)), content_type="text/csv; charset=utf-8"
        )
        answer["Content-Disposition"] = 'attachment; filename="activity.csv"'
        return answer


class _Echo:
    """A file that gives back what is written to it."""

    def write(self, line: str) -> str:
        return line


def _lines(rows: Iterator[Activity], *, private: bool) -> Iterator[str]:
    writer = csv.writer(_Echo())
    yield writer.writerow(_COLUMNS)
    while chunk := list(islice(rows, CHUNK)):
        for row in chunk if private else acts_of_memories.without_what_is_private(chunk):
            words = (getattr(row, name) for name in _COLUMNS[1:])
            yield writer.writerow([row.at.isoformat(), *(_harmless(word) for word in words)])


def _harmless(word: str) -> str:
    """A spreadsheet takes a cell that begins like this for a formula."""
    return f"'{word}" if word.startswith(("=", "+", "-", "@", "\t", "\r")) else word


def _kind(label: str) -> str:
    try:
        return str(apps.get_model(label)._meta.verbose_name)
    except (LookupError, ValueError):
        return label


def _page(row: Activity) -> str:
    if not row.target_id:
        return ""
    try:
        return reverse(f"admin:{row.target_type.replace('.', '_')}_change", args=[row.target_id])
    except NoReverseMatch:
        return ""
