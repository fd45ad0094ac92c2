"""What an operator can do to rows: asked on one page, with a reason, done by a service, then told.

An `Act` is offered on a row's page, in its list, or for several rows at once. Its page says what it will do, to how
many, and what cannot be undone; nothing happens before a reason is given.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.db import Error
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.http import url_has_allowed_host_and_scheme, urlencode
from django.utils.safestring import SafeString

from agentmemory.admin import once, subjects
from agentmemory.admin.base import ConsoleAdmin, Row
from agentmemory.admin.subjects import Subjects
from agentmemory.authorship import Author
from agentmemory.console import figures, links, permissions
from agentmemory.errors import AgentMemoryError

logger = logging.getLogger(__name__)

MOST_UNDOS = 5
REASON_LENGTH = 500
FAILED = "the database failed. Nothing after it was tried. Look whether it was done itself, and ask anew."


class AskForm(forms.Form):
    """The line that says why. Acts that need more extend it; `subjects` are the rows they are about."""

    reason = forms.CharField(
        max_length=REASON_LENGTH,
        label="Why",
        help_text="One line, kept with what is done.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )

    def __init__(self, *args: Any, subjects: Sequence[Any] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.subjects = subjects
        self.once = once.mark()
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
class Undo:
    """The act that takes back what was done to a row, with what its form is filled with.

    It is the row that was acted upon, unless `row` names another.
    """

    act: str
    row: Model | None = None
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Did:
    """What was done, in words, and what takes it back where only the doing tells."""

    said: str
    undo: Undo | None = None


@dataclass(frozen=True, kw_only=True)
class Act:
    """One thing that can be done. `run` calls a service and returns what it did, or raises why not.

    Its page says how it is taken back, by `undo` or in the words of `back`, or by `final` that it cannot be.
    """

    name: str
    label: str
    button: str = ""
    explains: str
    run: Callable[[Any, Asked], str | Did]
    undo: str = ""
    back: str = ""
    final: str = ""
    form: type[AskForm] = AskForm
    bulk: bool = False
    danger: bool = False
    offered: Callable[[Any], bool] = lambda row: True
    """Whether it can be done to a row as it stands."""
    beside: bool = False
    """Whether it is offered beside what it is about, and not among the buttons of the row's page."""
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
            if not act.beside and self._allows(request, act, [row]) and act.offered(row)
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
        """Ask, and on an answer do it, once. 403 without the right to do it, 404 for an act that there is not."""
        act = next((act for act in self.acts if act.name == name), None)
        if not self.may_act(request) or (act is not None and not self._allows(request, act, ())):
            raise PermissionDenied
        if act is None:
            raise Http404
        found = subjects.named(request.GET.get("ids", ""), self.get_queryset(request), fits=act.offered)
        if not self._allows(request, act, found.rows):
            raise PermissionDenied
        if request.method == "POST" and not found.rows:
            # Most of all where it was done already.
            messages.warning(request, f"{act.label}: nothing was done. {found.left_out}")
            # A row's page tells how it stands.
            return HttpResponseRedirect(self._next(request, found.unfit))
        for row in found.rows:
            if act.opens(row):
                permissions.note_look(request, row, getattr(row, "space", None))
        return self._answer(request, act, found)

    def _answer(self, request: HttpRequest, act: Act, found: Subjects) -> HttpResponse:
        form = self._form(request, act, found)
        if request.method == "POST" and form is not None and (once.known(request) or form.is_valid()):
            if once.claim(request):
                self._perform(request, act, found, form.cleaned_data)
            else:
                messages.warning(request, once.AGAIN)
            return HttpResponseRedirect(self._next(request, () if act.gone else found.rows))
        context = {
            **self.admin_site.each_context(request),
            "title": act.label,
            "opts": self.opts,
            "act": act,
            "undo": next((each.label for each in self.acts if each.name == act.undo), ""),
            "called": self.rows_called(),
            "names": [self.named(row) for row in found.rows],
            "left_out": found.left_out,
            "form": form,
            "back": self._next(request, found.rows),
            "preview": act.preview(request, found.rows) if act.preview and found.rows else "",
        }
        wrong = form is not None and bool(form.errors)
        return TemplateResponse(request, "console/act.html", context, status=422 if wrong else 200)

    def _form(self, request: HttpRequest, act: Act, found: Subjects) -> AskForm | None:
        """None where nothing is there to be acted upon."""
        if not found.rows:
            return None
        data = request.POST if request.method == "POST" else None
        return act.form(data, initial=request.GET.dict(), subjects=found.rows)

    def _act_route(self) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_act"

    def named(self, row: Row) -> str:
        """What a row is called where it is acted upon."""
        return str(row)

    def _perform(self, request: HttpRequest, act: Act, found: Subjects, values: dict[str, Any]) -> None:
        asked = Asked(
            operator=request.user.get_username(),
            reason=values["reason"],
            values={name: value for name, value in values.items() if name != "reason"},
        )
        done: list[tuple[Model, Did]] = []
        for row in found.rows:
            # What it is called now: some are not there afterwards.
            name = self.named(row)
            try:
                did = act.run(row, asked)
            except AgentMemoryError as error:
                messages.error(request, f"{name}: {error}")
            except Error as error:
                logger.error("act failed", exc_info=error, extra={"action": "console.act_failed", "act": act.name})
                messages.error(request, f"{name}: {FAILED}")
                # The rest would fail alike, each of them slowly.
                break
            else:
                done.append((row, did if isinstance(did, Did) else Did(said=did)))
        if done:
            one = len(found.rows) == 1
            said = done[0][1].said if one else f"{act.label}: {len(done)} of {len(found.rows)} done."
            messages.success(request, self._told(request, f"{said} {found.left_out}".strip(), act, done))

    def _told(self, request: HttpRequest, said: str, act: Act, done: Sequence[tuple[Model, Did]]) -> SafeString:
        """What was done, with a link that takes it back: one for each of what has to be taken back differently.

        Its page is filled with a reason that names the first one.
        """
        reason = f"undo: {request.POST.get('reason', '').strip()}"[:REASON_LENGTH]
        undos: dict[tuple[Any, ...], list[Any]] = {}
        for row, did in done:
            undo = did.undo or (Undo(act=act.undo) if act.undo else None)
            if undo is not None:
                subject = undo.row or row
                if not self._may_undo(request, undo, subject):
                    continue
                kind = (subject._meta.app_label, subject._meta.model_name or "", undo.act)
                undos.setdefault((kind, tuple(undo.values.items())), []).append(subject.pk)
        if len(undos) > MOST_UNDOS:
            return format_html("{} Each is taken back on a page of its own.", said)
        urls = [
            links.act(app, model, name, pks, **{"reason": reason, **dict(values)})
            for ((app, model, name), values), pks in undos.items()
        ]
        shown = [format_html(' <a class="am-link" href="{}">Undo</a>', url) for url in urls]
        return format_html("{}{}", said, SafeString("".join(shown)))

    def _may_undo(self, request: HttpRequest, undo: Undo, subject: Model) -> bool:
        """Whether this operator may take it back, as it stands now: it may be another's row, or private since."""
        of_it: Any = self.admin_site.get_model_admin(type(subject))
        rows = type(subject)._default_manager.filter(pk=subject.pk)
        return any(of_it._allows(request, act, rows) for act in of_it.acts if act.name == undo.act)

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
        pks = list(queryset.values_list("pk", flat=True)[: subjects.MOST_ROWS])
        return HttpResponseRedirect(model_admin.act_url(act.name, pks, next=request.get_full_path()))

    ask.__name__ = act.name
    return ask
