"""What the lists of every app share: bounded, read only unless they say otherwise, nothing deleted by a click."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from django.contrib.admin import ShowFacets
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db import connection
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.text import capfirst

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin as UnfoldAdmin

    Pages = Paginator[Any]
else:
    from unfold.admin import ModelAdmin

    Pages = Paginator

    class UnfoldAdmin(ModelAdmin):
        """unfold's own, which takes a parameter only for the type checker."""

        def __class_getitem__(cls, row: Any) -> type:
            return cls


Row = TypeVar("Row", bound=Model)


class BoundedPaginator(Pages):
    """Pages over the first rows of a list: a list never counts a million rows.

    What lies behind `MOST` is reached by filters. Where it is cut, `estimate` is the table's size as the planner
    knows it, and the page says ≈.
    """

    MOST = 10_000
    template_name = "console/pagination.html"

    @cached_property
    def count(self) -> int:
        rows = self.object_list
        if not isinstance(rows, QuerySet):
            return len(rows)
        found = rows.order_by().values("pk")[: self.MOST + 1].count()
        self.cut = found > self.MOST
        return min(found, self.MOST)

    cut = False

    @cached_property
    def estimate(self) -> int:
        rows = self.object_list
        if not isinstance(rows, QuerySet):
            return len(rows)
        with connection.cursor() as cursor:
            cursor.execute("SELECT reltuples FROM pg_class WHERE oid = to_regclass(%s)", [rows.model._meta.db_table])
            row = cursor.fetchone()
        return max(self.count, int(row[0]) if row else 0)


class ConsoleList(ChangeList):
    """A list without the number of all rows, which is never counted."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.full_result_count = self.result_count


class ConsoleAdmin(UnfoldAdmin[Row]):
    """One list and its pages. Nothing is deleted here: what can go goes through an act, with a reason."""

    list_per_page = 50
    # No page of everything: that is what the pages are for.
    list_max_show_all = 0
    # What an empty list says: what to do next.
    empty_line = "Nothing is here yet."
    # What its rows are called where they are counted, when the list's own name says something else: one, several.
    counted: tuple[str, str] | None = None
    show_full_result_count = False
    paginator = BoundedPaginator
    list_fullwidth = True
    list_filter_submit = True
    list_disable_select_all = True
    # Counting the rows of each filter is counting all rows, several times.
    show_facets = ShowFacets.NEVER
    warn_unsaved_form = True

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return ConsoleList

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        # The list's own name, where the framework would say "Select … to change".
        title = {"title": capfirst(str(self.opts.verbose_name_plural))}
        return super().changelist_view(request, {**title, **(extra_context or {})})

    def rows_called(self) -> tuple[str, str]:
        """One row, several rows."""
        return self.counted or (str(self.opts.verbose_name), str(self.opts.verbose_name_plural))

    def has_delete_permission(self, request: HttpRequest, obj: Row | None = None) -> bool:
        return False

    def may_act(self, request: HttpRequest) -> bool:
        """Whether this operator may do what changes these rows."""
        opts = self.opts
        return bool(request.user.has_perm(f"{opts.app_label}.change_{opts.model_name}"))


class ReadOnlyAdmin(ConsoleAdmin[Row]):
    """Rows that only the product itself writes."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Row | None = None) -> bool:
        return False
