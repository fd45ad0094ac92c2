"""Filters of the lists: typed words rather than menus, since menus of agents or sessions would have no end."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib.admin.utils import get_fields_from_path
from django.db.models import QuerySet
from django.http import HttpRequest

from agentmemory.console import permissions

if TYPE_CHECKING:
    from django.contrib.admin import SimpleListFilter as ChoiceBase
    from django.contrib.admin import SimpleListFilter as TextBase
else:
    from unfold.contrib.filters.admin import DropdownFilter as ChoiceBase
    from unfold.contrib.filters.admin import TextFilter as TextBase


MOST_MEANT = 1_000
"""Agents or sessions that one word may mean."""


class WordFilter(TextBase):
    """Rows whose field is exactly a typed word.

    What another table calls by it is looked up first: the planner then knows how many rows that means, and does not
    look through all of a list for a few.
    """

    field: ClassVar[str]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = (self.value() or "").strip()
        return self.chosen(queryset, value) if value else queryset

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        relation, _, name = self.field.rpartition("__")
        if not relation:
            return queryset.filter(**{name: value})
        other: Any = get_fields_from_path(queryset.model, self.field)[-1].model
        meant = list(
            other._default_manager.filter(**{name: value}).order_by("pk").values_list("pk", flat=True)[:MOST_MEANT]
        )
        return queryset.filter(**{f"{relation}__in": meant})


def word(name: str, field: str) -> type[WordFilter]:
    """A filter of this title by exactly this field."""
    parameter = re.sub(r"\W+", "_", name)
    return type(
        f"{parameter.title()}Filter", (WordFilter,), {"title": name, "parameter_name": parameter, "field": field}
    )


class TagFilter(TextBase):
    title = "tag"
    parameter_name = "tag"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = (self.value() or "").strip()
        if not value:
            return queryset
        # A list that answers is a way of reading: without the right to, only what is shared is looked through.
        readable = queryset if permissions.reads_private(request) else queryset.filter(owner__isnull=True)
        return readable.filter(tags__contains=[value])


class ChoiceFilter(ChoiceBase):
    """A menu of a few fixed choices; `chosen` narrows the rows."""

    options: ClassVar[tuple[tuple[str, str], ...]]

    def lookups(self, request: HttpRequest, model_admin: Any) -> tuple[tuple[str, str], ...]:
        return self.options

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return self.chosen(queryset, self.value() or "")

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        raise NotImplementedError
