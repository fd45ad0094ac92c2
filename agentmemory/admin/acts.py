"""What an operator can do to rows: asked on one page, with a reason, done by a service, then told.

An `Act` is offered on a row's page, in its list, or for several rows at once. Its page says what it will do, to how
many, and what cannot be undone; nothing happens before a reason is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.http import url_has_allowed_host_and_scheme, urlencode
from django.utils.safestring import SafeString

from agentmemory.admin.base import ConsoleAdmin, Row
from agentmemory.authorship import Author
from agentmemory.console import figures, permissions
from agentmemory.errors import AgentMemoryError

MOST_ROWS = 100


class AskForm(forms.Form):
    """The line that says why. Acts that need more extend it; `subjects` are the rows they are about."""

    reason = forms.CharField(
        max_length=500,
        label="Why",
        help_text="One line, kept with what is done.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )

    def __init__(self, *args: Any, subjects: Sequence[Any] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.subjects = subjects
        # Asked last, whatever an extension adds.
        self.order_fields([*(name for name in self.fields if name != "reason"), "reason"])


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the operator answered."""

    operator: str
    reason: str
    values: dict[str, Any]

    @property
    def author(self) -> Author:
        return Author(kind="operator", name=self.operator)


@dataclass(frozen=True, kw_only=True)
class Act:
    """One thing that can be done. `run` calls a service and returns what it did, in words, or raises why not."""

    name: str
    label: str
    button: str = ""
    explains: str
    run: Callable[[Any, Asked], str]
    undo: str = ""
    final: str = ""
    form: type[AskForm] = AskForm
    bulk: bool = False
    danger: bool = False
    offered: Callable[[Any], bool] = lambda row: True
    gone: bool = False
    """Whether the rows are no longer there afterwards."""
    preview: Callable[[HttpRequest, Sequence[Any]], SafeString] | None = None
    """What it will do to these rows in particular, shown before it is done."""
    needs: str = ""
    """A right that it needs beside the one to change its rows."""
    opens: Callable[[Any], bool] = lambda row: False
    """Whether it shows what is private about a row, or lets others read it: for those who may read it themselves."""


class ActingAdmin(ConsoleAdmin[Row]):
    """A list whose rows can be acted upon."""

    acts: ClassVar[Sequence[Act]] = ()

    def __init__(self, model: type[Row], admin_site: AdminSite) -> None:
        super().__init__(model, admin_site)
        self.actions = [_bulk(act) for act in self.acts if act.bulk]

    def has_act_permission(self, request: HttpRequest) -> bool:
        """What the framework asks before it offers one of the actions."""
        return self.may_act(request)

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        """The column of acts is for those who may act."""
        return [name for name in self.list_display if name != "row_acts" or self.may_act(request)]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The page of a row, with what may be done to it."""
        context = extra_context or {}
        if "acts" not in context and (row := self.get_object(request, object_id)) is not None:
            context = {**context, "acts": self.act_links(row, request)}
        return super().change_view(request, object_id, form_url, context)

    def act_url(self, name: str, pks: Sequence[Any], **more: Any) -> str:
        """Where an act asks, for these rows."""
        base = reverse(f"{self.admin_site.name}:{self._act_route()}", args=[name])
        return f"{base}?{urlencode({'ids': ','.join(str(pk) for pk in pks), **more})}"

    def act_links(self, row: Row, request: HttpRequest) -> list[dict[str, Any]]:
        """The acts that a row's page offers this operator: none where nothing may be done, never a dead button."""
        return [
            {"label": act.label, "url": self.act_url(act.name, [row.pk]), "danger": act.danger, "name": act.name}
            for act in self.acts
            if self._allows(request, act, [row]) and act.offered(row)
        ]

    def _allows(self, request: HttpRequest, act: Act, rows: Sequence[Row]) -> bool:
        """Whether this operator may do this to these rows."""
        if not self.may_act(request) or (act.needs and not request.user.has_perm(act.needs)):
            return False
        return permissions.reads_private(request) or not any(act.opens(row) for row in rows)

    def row_links(self, row: Row, *names: str) -> SafeString | str:
        """Links to some acts, for a column of a list: such as need no more than the right to change its rows."""
        offered = [act for act in self.acts if act.name in names and act.offered(row)]
        links = [
            format_html('<a class="am-link" href="{}">{}</a>', self.act_url(act.name, [row.pk]), act.label)
            for act in offered
        ]
        return format_html('<span class="am-acts">{}</span>', SafeString(" ".join(links))) if links else figures.NONE

    def get_urls(self) -> list[URLPattern]:
        route = path("act/<slug:name>/", self.admin_site.admin_view(self.act_view), name=self._act_route())
        return [route, *super().get_urls()]

    def act_view(self, request: HttpRequest, name: str) -> HttpResponse:
        """Ask, and on an answer do it. 403 without the right to do it, 404 for an act or a row that is not there."""
        act = next((act for act in self.acts if act.name == name), None)
        if not self.may_act(request) or (act is not None and not self._allows(request, act, ())):
            raise PermissionDenied
        rows = self._subjects(request, request.GET.get("ids", ""))
        if act is None or not rows:
            raise Http404
        if not self._allows(request, act, rows):
            raise PermissionDenied
        for row in rows:
            if act.opens(row):
                permissions.note_look(request, row, getattr(row, "space", None))
        form = act.form(request.POST if request.method == "POST" else None, initial=request.GET.dict(), subjects=rows)
        if request.method == "POST" and form.is_valid():
            self._perform(request, act, rows, form.cleaned_data)
            return HttpResponseRedirect(self._next(request, () if act.gone else rows))
        context = {
            **self.admin_site.each_context(request),
            "title": act.label,
            "opts": self.opts,
            "act": act,
            "plural": self.rows_called()[1],
            "names": [self.named(row) for row in rows],
            "form": form,
            "back": self._next(request, rows),
            "preview": act.preview(request, rows) if act.preview else "",
        }
        return TemplateResponse(request, "console/act.html", context, status=422 if form.errors else 200)

    def _act_route(self) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_act"

    def named(self, row: Row) -> str:
        """What a row is called where it is acted upon."""
        return str(row)

    def _subjects(self, request: HttpRequest, ids: str) -> list[Row]:
        wanted = [part for part in ids.split(",") if part][:MOST_ROWS]
        try:
            return list(self.get_queryset(request).filter(pk__in=wanted))
        except (ValueError, ValidationError):
            return []

    def _perform(self, request: HttpRequest, act: Act, rows: Sequence[Row], values: dict[str, Any]) -> None:
        asked = Asked(
            operator=request.user.get_username(),
            reason=values["reason"],
            values={name: value for name, value in values.items() if name != "reason"},
        )
        done: list[Row] = []
        for row in rows:
            try:
                said = act.run(row, asked)
            except AgentMemoryError as error:
                messages.error(request, f"{self.named(row)}: {error}")
            else:
                done.append(row)
                if len(rows) == 1:
                    messages.success(request, self._told(said, act, done))
        if len(rows) > 1 and done:
            messages.success(request, self._told(f"{act.label}: {len(done)} of {len(rows)} done.", act, done))

    def _told(self, said: str, act: Act, done: Sequence[Row]) -> SafeString:
        if not act.undo:
            return format_html("{}", said)
        undo = self.act_url(act.undo, [row.pk for row in done])
        return format_html('{} <a class="am-link" href="{}">Undo</a>', said, undo)

    def _next(self, request: HttpRequest, rows: Sequence[Model]) -> str:
        wanted = request.GET.get("next", "")
        if wanted and url_has_allowed_host_and_scheme(wanted, allowed_hosts={request.get_host()}):
            return wanted
        route = f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}"
        if len(rows) == 1:
            return reverse(f"{route}_change", args=[rows[0].pk])
        return reverse(f"{route}_changelist")


def _bulk(act: Act) -> Callable[[ActingAdmin[Any], HttpRequest, QuerySet[Any]], HttpResponse]:
    """An act as one of the framework's actions: it leads to the page that asks."""

    @admin.action(permissions=["act"], description=act.label)
    def ask(model_admin: ActingAdmin[Any], request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse:
        pks = list(queryset.values_list("pk", flat=True)[:MOST_ROWS])
        return HttpResponseRedirect(model_admin.act_url(act.name, pks, next=request.get_full_path()))

    ask.__name__ = act.name
    return ask
