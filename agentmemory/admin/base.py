"""What the lists of every app share: bounded, read only unless they say otherwise, nothing deleted by a click."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from django.contrib.admin import ShowFacets
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ORDER_VAR, PAGE_VAR, ChangeList
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.text import capfirst

from agentmemory.console import keyset

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


class PlacePaginator(Pages):
    """What the framework's list wants to know of pages: that there is no number of them, and how they are drawn."""

    template_name = "console/pagination.html"


class ConsoleList(ChangeList):
    """A list in pages that begin at a place (see `keyset`): no row is counted or skipped, whatever there are.

    It can be ordered by columns that an index has in order, and by one of them at a time.
    """

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        """The database holds no text with a NUL in it, and fails where it is asked for one."""
        if "%00" in request.GET.urlencode():
            raise IncorrectLookupParameters
        return super().get_queryset(request, exclude_parameters)

    def get_results(self, request: HttpRequest) -> None:
        place = request.GET.get(PAGE_VAR, "")
        try:
            found = keyset.page(self.queryset, self.order, place=_place(place), size=self.list_per_page)
        except keyset.BadPlaceError as error:
            raise IncorrectLookupParameters from error
        # A place is of the list's own order: within the page its rows may stand otherwise.
        of: Any = self.model_admin
        self.result_list = of.arranged(found.rows, self.query)
        self.result_count = self.full_result_count = len(found.rows)
        self.whole = not (found.previous or found.next)
        self.previous_url, self.next_url = self._to(found.previous), self._to(found.next)
        self.first_url = self.get_query_string() if found.previous else ""
        self.paginator = PlacePaginator(found.rows, self.list_per_page)
        self.show_full_result_count = self.show_all = self.can_show_all = self.multi_page = False
        self.show_admin_actions = True

    @cached_property
    def estimate(self) -> int:
        """How many rows the whole list may have; 0 where the planner expects fewer than are known."""
        expected = keyset.estimate(self.queryset)
        return expected if expected > self.list_per_page else 0

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        """One column or the list's own order, then the key: all in one direction, so that a place can be named."""
        chosen = self._chosen()
        order = [chosen] if chosen else [*map(str, self.model_admin.get_ordering(request) or self.opts.ordering or ())]
        sign = "-" if (order or ["-pk"])[0].startswith("-") else ""
        fields: list[Any] = [self.opts.get_field(name.lstrip("-")) for name in order]
        names = [field.attname for field in fields]
        self.order = [sign + name for name in dict.fromkeys([*names, self.opts.pk.attname])]
        return self.order

    def get_ordering_field(self, field_name: Any) -> Any:
        """Nothing for a column that no index has in order: all rows would be sorted for one page of them."""
        found = super().get_ordering_field(field_name)
        return found if isinstance(found, str) and keyset.is_indexed(self.model, found.lstrip("-")) else None

    def get_ordering_field_columns(self) -> dict[int, Any]:
        """Asked for with every row, and always the same."""
        return self._sorted_by

    @cached_property
    def _sorted_by(self) -> dict[int, Any]:
        return super().get_ordering_field_columns()

    def _chosen(self) -> str:
        sign, _, number = self.params.get(ORDER_VAR, "").split(".")[0].rpartition("-")
        if sign or not (number.isascii() and number.isdigit() and int(number) < len(self.list_display)):
            return ""
        found = str(self.get_ordering_field(self.list_display[int(number)]) or "")
        descending = self.params[ORDER_VAR].startswith("-") != found.startswith("-")
        return found and ("-" if descending else "") + found.lstrip("-")

    def _to(self, place: str) -> str:
        return self.get_query_string({PAGE_VAR: place}) if place else ""


def _place(text: str) -> str:
    """A place, or none where something else stands."""
    return text if text.startswith((keyset.AFTER, keyset.BEFORE)) else ""


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
    paginator = PlacePaginator
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

    def arranged(self, rows: Sequence[Row], words: str) -> Sequence[Row]:
        """The rows of one page of what was searched for, in the order in which they stand there."""
        return rows

    def get_sortable_by(self, request: HttpRequest) -> list[Any]:
        """Columns that can be sorted by without sorting all rows: the others offer it not."""
        return [name for name in self.get_list_display(request) if self._in_order(name)]

    def _in_order(self, name: Any) -> bool:
        column = getattr(getattr(self, str(name), None), "admin_order_field", name)
        return isinstance(column, str) and keyset.is_indexed(self.model, column.lstrip("-"))

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        # The framework looks for the row first, and so tells whoever asks whether it is there.
        if not self.has_view_permission(request):
            raise PermissionDenied
        return super().history_view(request, object_id, extra_context)

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
