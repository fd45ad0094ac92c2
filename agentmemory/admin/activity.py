"""Every act of every operator: when, who, what, on what, why."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Max, QuerySet
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import NoReverseMatch, URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agentmemory.admin import filters
from agentmemory.admin.base import ReadOnlyAdmin
from agentmemory.console import figures, links
from agentmemory.models import Activity

MOST_ROWS = 50_000
# Words have no index here: so many of the newest acts are looked through.
MOST_SEARCHED = 50_000
_COLUMNS = ("at", "who", "act", "target_type", "target_id", "target", "reason")


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
    list_after_template = "console/activity_csv.html"
    counted = ("act", "acts")
    empty_line = "No operator has done anything yet."

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Activity], search_term: str
    ) -> tuple[QuerySet[Activity], bool]:
        if search_term.strip():
            newest = Activity.objects.aggregate(newest=Max("pk"))["newest"] or 0
            queryset = queryset.filter(pk__gt=newest - MOST_SEARCHED)
        return super().get_search_results(request, queryset, search_term)

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
        rows = Activity.objects.order_by("-id").values_list(*_COLUMNS)[:MOST_ROWS].iterator(chunk_size=1000)
        answer = StreamingHttpResponse(_lines(rows), content_type="text/csv; charset=utf-8")
        answer["Content-Disposition"] = 'attachment; filename="activity.csv"'
        return answer


class _Echo:
    """A file that gives back what is written to it."""

    def write(self, line: str) -> str:
        return line


def _lines(rows: Any) -> Iterator[str]:
    writer = csv.writer(_Echo())
    yield writer.writerow(_COLUMNS)
    for at, *words in rows:
        yield writer.writerow([at.isoformat(), *(_harmless(word) for word in words)])


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
