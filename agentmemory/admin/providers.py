"""Providers: where models are reached. A key is never shown, only whether its variable holds one."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.db.models import Exists, OuterRef, QuerySet, Value
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminTextareaWidget

from agentmemory.admin.setup import ReasonForm, SetUpAdmin
from agentmemory.console import figures, labels, permissions
from agentmemory.errors import Invalid
from agentmemory.models import Agent, Provider
from agentmemory.services import providers

_KINDS = {
    Provider.Kind.OFFLINE: "The built-in extractor: it takes sentences out by their wording, without a model, a key or "
    "a call to anywhere. It costs nothing and finds less than a model does.",
    Provider.Kind.ACP: "Runs agents and cannot be used for extraction: its sessions are skipped, without a failure.",
    Provider.Kind.ANTHROPIC: "Speaks the Anthropic wire, at its address.",
}

_SHORT = {
    Provider.Kind.OFFLINE: "no model, by wording",
    Provider.Kind.ACP: "not for extraction",
}


class LinesField(forms.CharField):
    """A list of words, one in each line."""

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> list[str]:  # type: ignore[override]  # a list is what its column keeps
        return [line.strip() for line in str(value or "").splitlines() if line.strip()]

    def run_validators(self, value: Any) -> None:
        """What is true of a text is true of its lines: no NUL, which no column keeps, and an end."""
        super().run_validators(self.prepare_value(value))

    def has_changed(self, initial: Any, data: Any) -> bool:
        return self.to_python(self.prepare_value(initial)) != self.to_python(data)


class ProviderForm(ReasonForm):
    """An address that may not be called is refused here already."""

    class Meta:
        help_texts: ClassVar[dict[str, str]] = {
            "key_variable": "The variable of the environment that holds its key: ANTHROPIC_API_KEY, or one that begins "
            "with AGENTMEMORY_KEY_. Empty: no key is sent. The key itself is kept nowhere.",
            "default_model": "The model for agents and spaces that name none.",
        }

    served_models = LinesField(
        required=False,
        max_length=50_000,
        help_text="Ids of the models that are reached here beside the default one, each in a line of its own.",
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
    )

    def clean_address(self) -> str:
        address: str = self.cleaned_data["address"]
        if address:
            try:
                providers.check_address(address)
            except Invalid as error:
                raise forms.ValidationError(str(error)) from error
        return address


@admin.register(Provider)
class ProviderAdmin(SetUpAdmin[Provider]):
    form = ProviderForm
    list_display: tuple[str, ...] = ("called_by", "what", "state", "serves")
    search_fields = ("name", "address")
    readonly_fields = ("what_it_is", "key_state")
    fields = (
        "what_it_is",
        "name",
        "kind",
        "address",
        "key_variable",
        "key_state",
        "default_model",
        "served_models",
        "timeout_seconds",
        "structured_outputs",
        "price_in",
        "price_out",
        "enabled",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Provider]:
        return (
            super()
            .get_queryset(request)
            .annotate(
                is_named=Exists(Agent.objects.filter(provider=OuterRef("pk"))),
                may_be_read=Value(permissions.reads_private(request)),
            )
        )

    def get_readonly_fields(self, request: HttpRequest, obj: Provider | None = None) -> tuple[str, ...]:
        # Rows name a provider by its name as well.
        return self.readonly_fields if obj is None else (*self.readonly_fields, "name")

    def get_fields(self, request: HttpRequest, obj: Provider | None = None) -> list[Any]:
        fields = super().get_fields(request, obj)
        return fields if obj else [name for name in fields if name not in self.readonly_fields]

    @admin.display(description="Kind and key", ordering="kind")
    def what(self, provider: Provider) -> SafeString:
        short = _SHORT.get(Provider.Kind(provider.kind))
        more = format_html('<span class="am-first">{}</span>', short) if short else self.key_state(provider)
        return format_html('<div class="am-stack">{}{}</div>', provider.kind, more)

    @admin.display(description="Provider", ordering="name")
    def called_by(self, provider: Provider) -> SafeString:
        return format_html('<span class="am-key">{}</span><span class="am-first">{}</span>', provider, provider.address)

    @admin.display(description="What it is")
    def what_it_is(self, provider: Provider) -> str:
        return _KINDS.get(Provider.Kind(provider.kind), "") if provider.kind else ""

    @admin.display(description="State")
    def state(self, provider: Any) -> SafeString:
        if not provider.enabled:
            return labels.label("off")
        if line := providers.pause_line(provider, now=timezone.now(), private=provider.may_be_read):
            return labels.with_line("paused", line.split("\n", 1)[0].removeprefix("paused ")[:160])
        if provider.kind == Provider.Kind.ACP:
            return labels.with_line("skipped", "its sessions are, since it cannot be used for extraction")
        if providers.key(provider) is None:
            missing = f"{provider.key_variable} is not set"
            if provider.is_named:
                return labels.with_line("blocked", missing)
            return labels.with_line("not used", f"{missing}, and no agent names it")
        return self.may_be_called(provider)

    def may_be_called(self, provider: Any) -> SafeString:
        """The state of one that nothing known here keeps from being called."""
        return labels.label("ready")

    @admin.display(description="Key")
    def key_state(self, provider: Provider) -> SafeString:
        if provider.kind == Provider.Kind.OFFLINE:
            return labels.label("no key needed")
        if not provider.key_variable:
            return labels.label("no key is sent")
        return labels.label("key present" if providers.key(provider) else "key missing")

    @admin.display(description="Default model", ordering="default_model")
    def serves(self, provider: Provider) -> SafeString:
        prices = f"{figures.money(provider.price_in)} in, {figures.money(provider.price_out)} out"
        known = provider.price_in is not None or provider.price_out is not None
        return format_html(
            '{}<span class="am-first" title="for a million tokens">{}</span>',
            provider.default_model or figures.NONE,
            prices if known else "no price",
        )
