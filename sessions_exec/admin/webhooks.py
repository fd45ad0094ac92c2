"""Webhooks: made through the service, their secret shown once; what they were told stands in their deliveries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.cache import add_never_cache_headers
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminTextInputWidget

from agentmemory.admin import filters, once
from agentmemory.admin.acts import Act, Asked, AskForm
from agentmemory.admin.setup import ReasonForm, SetUpAdmin
from agentmemory.console import figures, goes, labels, links
from agentmemory.errors import AgentMemoryError, Invalid
from agentmemory.models import Space
from sessions_exec.models import Delivery, Webhook
from sessions_exec.models.webhooks import Event
from sessions_exec.services import webhooks


class NotTaken(AgentMemoryError):
    """A test was not taken. The text says what came back."""


class WebhookForm(ReasonForm):
    """Where it goes and what it is told of: an address that may not be called is refused here already."""

    url = forms.CharField(max_length=500, label="Address", widget=UnfoldAdminTextInputWidget)
    events = forms.MultipleChoiceField(choices=Event.choices, widget=forms.CheckboxSelectMultiple, label="Told when")

    def clean_url(self) -> str:
        url: str = self.cleaned_data["url"]
        try:
            webhooks.check_url(url)
        except Invalid as error:
            raise forms.ValidationError(str(error)) from error
        return url


class NewForm(AskForm):
    """A webhook that is to be."""

    space = forms.ModelChoiceField(queryset=Space.objects.active(), empty_label=None)
    name = forms.CharField(max_length=100, help_text="What it is for, to find it again.")
    url = forms.CharField(
        max_length=500,
        label="Address",
        help_text="Begins with https://. One of a private network is refused, unless the settings allow it.",
    )
    events = forms.MultipleChoiceField(
        choices=Event.choices, initial=Event.values, widget=forms.CheckboxSelectMultiple, label="Told when"
    )


def _pause(webhook: Webhook, asked: Asked) -> str:
    webhooks.pause(webhook_id=webhook.pk, operator=asked.operator, reason=asked.reason)
    return f"{webhook} is called no more; what happens meanwhile waits for it."


def _resume(webhook: Webhook, asked: Asked) -> str:
    webhooks.resume(webhook_id=webhook.pk, operator=asked.operator, reason=asked.reason)
    return f"{webhook} is called again, with what waited for it."


def _test(webhook: Webhook, asked: Asked) -> str:
    sent = webhooks.try_out(webhook_id=webhook.pk, operator=asked.operator, reason=asked.reason)
    if sent.state != Delivery.State.DELIVERED:
        raise NotTaken(sent.error)
    return f"{webhook} answered {sent.status} in {sent.seconds:.2g} s."


def _remove(webhook: Webhook, asked: Asked) -> str:
    webhooks.remove(webhook_id=webhook.pk, operator=asked.operator, reason=asked.reason)
    return f"{webhook} is removed."


def _forgets(request: HttpRequest, rows: Sequence[Webhook]) -> SafeString:
    told = Delivery.objects.filter(webhook__in=rows)
    waits = told.filter(state=Delivery.State.PENDING).count()
    return goes.with_it("What goes with it:", {"deliveries": told.count(), "of them on their way": waits})


def _paused(webhook: Webhook) -> bool:
    return webhook.paused_at is not None


@admin.register(Webhook)
class WebhookAdmin(SetUpAdmin[Webhook]):
    acts: ClassVar[Sequence[Act]] = (
        Act(
            name="test",
            label="Test",
            explains="Sends one test to its address, also while it is paused, waits ten seconds at most, and shows "
            "what comes back.",
            run=_test,
            final="What was sent cannot be called back.",
        ),
        Act(
            name="pause",
            label="Pause",
            explains="Calls it no more until somebody resumes it. What happens meanwhile waits for it, up to a "
            "thousand events.",
            run=_pause,
            undo="resume",
            bulk=True,
            offered=lambda webhook: not _paused(webhook),
        ),
        Act(
            name="resume",
            label="Resume",
            explains="Calls it again, at once, with what waited for it.",
            run=_resume,
            undo="pause",
            bulk=True,
            offered=_paused,
        ),
        Act(
            name="remove",
            label="Remove",
            explains="Deletes the webhook, with what it was told and what still waits for it.",
            run=_remove,
            preview=_forgets,
            final="It cannot be brought back: its address and its secret are forgotten.",
            danger=True,
            gone=True,
        ),
    )
    form = WebhookForm
    empty_line = "Nobody is told of anything yet: add an address that takes webhooks."
    list_display = ("called", "space", "state", "listens", "last_success", "row_acts")
    list_select_related = ("space",)
    search_fields = ("name", "url")
    list_filter = (filters.word("space", "space__slug"),)
    fields = ("space", "name", "url", "events")
    readonly_fields = ("space",)
    change_form_outer_before_template = "console/webhook_before.html"

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.rotate_view)
        return [path("<int:pk>/secret/", view, name="sessions_exec_webhook_secret"), *super().get_urls()]

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Make a webhook. Its secret is on the answer's page and nowhere else."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = NewForm(request.POST if request.method == "POST" else None)
        return self._opened(request, form, webhooks.create, {"title": "Add a webhook"})

    def rotate_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Make a new secret, which is shown this once."""
        webhook = self.get_object(request, str(pk))
        if not self.may_act(request):
            raise PermissionDenied
        if webhook is None:
            raise Http404
        form = AskForm(request.POST if request.method == "POST" else None)

        def run(**given: Any) -> webhooks.Opened:
            return webhooks.rotate(webhook_id=webhook.pk, **given)

        return self._opened(request, form, run, {"title": "A new secret", "webhook": webhook})

    def _opened(
        self, request: HttpRequest, form: AskForm, run: Callable[..., webhooks.Opened], more: dict[str, Any]
    ) -> HttpResponse:
        context = {**self.admin_site.each_context(request), "opts": self.opts, "form": form, **more}
        if request.method == "POST" and form.is_valid():
            if not once.claim(request):
                messages.warning(request, f"{once.AGAIN} The secret was shown on the first answer alone.")
                return HttpResponseRedirect(reverse("admin:sessions_exec_webhook_changelist"))
            try:
                context["opened"] = run(**form.cleaned_data, operator=request.user.get_username())
            except Invalid as error:
                form.add_error(error.field if error.field in form.fields else None, str(error))
        response = TemplateResponse(request, "console/webhook.html", context, status=422 if form.errors else 200)
        add_never_cache_headers(response)
        return response

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        webhook = self.get_object(request, object_id)
        about = self._about(request, webhook) if webhook else {}
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), **about})

    def _about(self, request: HttpRequest, webhook: Webhook) -> dict[str, Any]:
        rotate = {"label": "New secret", "url": "../secret/", "danger": False, "name": "secret"}
        acts = self.act_links(webhook, request)
        return {
            "acts": [*acts[:-1], rotate, *acts[-1:]] if acts else [],
            "webhook": webhook,
            "waiting": webhook.deliveries.filter(state=Delivery.State.PENDING)[:1001].count(),
            "state": self.state(webhook),
            "deliveries_url": _deliveries(webhook),
        }

    @admin.display(description="Webhook", ordering="name")
    def called(self, webhook: Webhook) -> SafeString:
        return labels.lines(webhook.name, webhook.url)

    @admin.display(description="State")
    def state(self, webhook: Webhook) -> SafeString:
        if webhook.paused_at is not None:
            who = webhook.paused_by.partition(":")[2] or "by itself"
            return labels.with_line("paused", f"{who}: {webhook.paused_reason}")
        if webhook.failures:
            times = "once" if webhook.failures == 1 else f"{webhook.failures} times in a row"
            return labels.with_line("failing", f"its last call failed, {times}")
        return labels.label("active")

    @admin.display(description="Told when")
    def listens(self, webhook: Webhook) -> SafeString | str:
        return labels.chips([str(event) for event in webhook.events])

    @admin.display(description="Last taken")
    def last_success(self, webhook: Webhook) -> SafeString:
        return figures.when(webhook.last_success_at, never="never")

    @admin.display(description="Actions")
    def row_acts(self, webhook: Webhook) -> SafeString | str:
        told = links.anchor(_deliveries(webhook), "Deliveries")
        return format_html("{} {}", self.row_links(webhook, "test", "pause", "resume"), told)


def _deliveries(webhook: Webhook) -> str:
    query = urlencode({"webhook": webhook.name, "space": webhook.space.slug})
    return links.listing("sessions_exec", "delivery", query)
