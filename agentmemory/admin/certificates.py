"""Purges: their certificates, and everything that is stored about something, to be looked through and erased."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, URLPattern, path
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agentmemory.admin import once, purge_acts
from agentmemory.admin.acts import AskForm
from agentmemory.admin.base import ReadOnlyAdmin
from agentmemory.authorship import Author
from agentmemory.console import figures, links, permissions, tables
from agentmemory.errors import AgentMemoryError
from agentmemory.models import Certificate
from agentmemory.services import finding, purging
from agentmemory.services.purging import Scope


class FindForm(forms.Form):
    q = forms.CharField(max_length=1_000, label="Words", help_text="As they were written, in whatever case.")


@admin.register(Certificate)
class CertificateAdmin(ReadOnlyAdmin[Certificate]):
    counted = ("certificate", "certificates")
    empty_line = "Nothing was ever purged."
    list_display = ("name", "when", "who", "reason", "took", "space")
    list_display_links = ("name",)
    list_select_related = ("space",)
    search_fields = ("who", "reason")
    ordering = ("-id",)
    fields = ("name", "exactly", "who", "reason", "space", "named", "took")
    readonly_fields = fields
    list_before_template = "console/certificates_before.html"

    @admin.display(description="Purge", ordering="id")
    def name(self, row: Certificate) -> str:
        return str(row)

    @admin.display(description="When", ordering="id")
    def when(self, row: Certificate) -> SafeString:
        return figures.when(row.at)

    @admin.display(description="When")
    def exactly(self, row: Certificate) -> SafeString:
        # To be read out and printed: on hover alone it would not be there.
        return format_html("{} ({})", figures.exact(row.at), figures.when(row.at))

    @admin.display(description="Erased")
    def took(self, row: Certificate) -> str:
        counts = tables.called(row.counts)
        return ", ".join(f"{what}: {figures.number(count)}" for what, count in counts.items()) or figures.NONE

    @admin.display(description="Named by their ids")
    def named(self, row: Certificate) -> str:
        named = {kind: ", ".join(map(str, ids)) if isinstance(ids, list) else ids for kind, ids in row.scope.items()}
        return "; ".join(f"{kind}: {ids}" for kind, ids in named.items())

    def get_urls(self) -> list[URLPattern]:
        route = path("find/", self.admin_site.admin_view(self.find_view), name="agentmemory_certificate_find")
        return [route, *super().get_urls()]

    def find_view(self, request: HttpRequest) -> HttpResponse:
        """Everything about some words; what is ticked is previewed, then purged with a reason."""
        if not (request.user.has_perm(permissions.PURGE) and permissions.reads_private(request)):
            raise PermissionDenied
        permissions.note_list(request, Certificate)
        form = FindForm(request.GET if "q" in request.GET else None)
        ask = AskForm(request.POST if request.POST.get("step") == "purge" else None)
        context: dict[str, Any] = {
            **self.admin_site.each_context(request),
            "title": "Find everything, and purge",
            "opts": self.opts,
            "form": form,
            "ask": ask,
            "final": purge_acts.FINAL,
        }
        try:
            scope = _scope(request)
            if request.POST.get("step") == "purge" and ask.is_valid():
                if not once.claim(request):
                    messages.warning(request, once.AGAIN)
                    return HttpResponseRedirect(links.listing("agentmemory", "certificate"))
                return self._purge(request, scope, ask.cleaned_data["reason"])
            if request.method == "POST":
                context |= {"scope": _ticked(scope), "preview": purge_acts.taken(request, scope)}
            elif form.is_valid():
                found = finding.everything(form.cleaned_data["q"])
                context |= {"found": found, "rows": [(row, _page(row)) for row in found.rows]}
        except AgentMemoryError as error:
            messages.error(request, str(error))
        return TemplateResponse(request, "console/find.html", context, status=422 if ask.errors else 200)

    def _purge(self, request: HttpRequest, scope: Scope, reason: str) -> HttpResponse:
        author = Author(kind="operator", name=request.user.get_username())
        certificate = purging.purge(scope=scope, author=author, reason=reason)
        messages.success(request, f"It was erased for good: certificate {certificate.pk}.")
        return HttpResponseRedirect(links.change("agentmemory", "certificate", certificate.pk))


_FIELDS = {
    "memory": "memory_ids",
    "session": "session_ids",
    "message": "message_ids",
    "pass": "pass_ids",
    "input": "input_ids",
}


def _scope(request: HttpRequest) -> Scope:
    """What was ticked. What is no id is left out."""
    chosen: dict[str, list[Any]] = {}
    for kind, name in _FIELDS.items():
        values = request.POST.getlist(kind)[: finding.MOST]
        chosen[name] = [pk for pk in (_id(kind, value) for value in values) if pk is not None]
    return Scope(**chosen)


def _id(kind: str, value: str) -> Any:
    try:
        return UUID(value) if kind == "memory" else int(value)
    except ValueError:
        return None


def _ticked(scope: Scope) -> list[tuple[str, Any]]:
    return [(kind, pk) for kind, name in _FIELDS.items() for pk in getattr(scope, name)]


def _page(row: finding.Found) -> str:
    """Where it is seen; nowhere where the console has no page of it."""
    if row.page is None:
        return ""
    model, pk = row.page
    try:
        return links.change(model._meta.app_label, str(model._meta.model_name), pk)
    except NoReverseMatch:
        return ""
