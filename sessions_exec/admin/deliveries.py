"""Deliveries: what each webhook was told, how often it was tried, and what is still on its way."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agentmemory.admin import filters
from agentmemory.admin.acts import Act, ActingAdmin, Asked
from agentmemory.admin.base import ReadOnlyAdmin
from agentmemory.console import figures, labels, links
from sessions_exec.models import Delivery
from sessions_exec.models.webhooks import TEST, Event
from sessions_exec.services import webhooks


class EventFilter(filters.ChoiceFilter):
    title = "event"
    parameter_name = "event"
    options = (*((event.value, event.value) for event in Event), (TEST, TEST))

    def chosen(self, queryset: Any, value: str) -> Any:
        return queryset.filter(event=value) if value else queryset


def _again(delivery: Delivery, asked: Asked) -> str:
    webhooks.send_again(delivery_id=delivery.pk, operator=asked.operator, reason=asked.reason)
    return f"{delivery} is sent again."


@admin.register(Delivery)
class DeliveryAdmin(ActingAdmin[Delivery], ReadOnlyAdmin[Delivery]):
    acts: ClassVar[Sequence[Act]] = (
        Act(
            name="again",
            label="Send again",
            explains="Sends it once more, under the same id: a receiver that has it already drops it.",
            run=_again,
            final="What was sent cannot be called back.",
            bulk=True,
            offered=lambda delivery: delivery.state != Delivery.State.PENDING,
        ),
    )
    empty_line = "No webhook was told of anything yet."
    list_display = ("event", "whose", "stated", "answer", "next_try", "at", "row_acts")
    list_select_related = ("webhook__space",)
    ordering = ("-id",)
    list_filter = (
        ("state", admin.ChoicesFieldListFilter),
        EventFilter,
        filters.word("webhook", "webhook__name"),
        filters.word("space", "webhook__space__slug"),
    )
    fields = ("what", "whose", "stated", "answer", "next_try", "at", "sent")
    readonly_fields = fields
    change_form_outer_before_template = "console/acts_before.html"

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        row = self.get_object(request, object_id)
        about = {"original": links.Named(row, row.receivers_id), "acts": self.act_links(row, request)} if row else {}
        return super().change_view(
            request, object_id, form_url, {"title": "Delivery", **about, **(extra_context or {})}
        )

    @admin.display(description="Event")
    def what(self, row: Delivery) -> SafeString:
        return labels.lines(row.event, row.receivers_id)

    @admin.display(description="Webhook")
    def whose(self, row: Delivery) -> SafeString:
        url = links.change("sessions_exec", "webhook", row.webhook_id)
        return format_html('{} <span class="am-line">{}</span>', links.anchor(url, row.webhook), row.webhook.space.slug)

    @admin.display(description="State", ordering="state")
    def stated(self, row: Delivery) -> SafeString:
        return labels.label({"pending": "waits"}.get(row.state, row.state))

    @admin.display(description="Last answer")
    def answer(self, row: Delivery) -> SafeString | str:
        if row.seconds is None:
            return figures.NONE
        tries = "1 attempt" if row.attempts == 1 else f"{row.attempts} attempts"
        return labels.lines(row.error or f"answered {row.status}", f"{tries}, the last took {row.seconds:.2g} s")

    @admin.display(description="Next try")
    def next_try(self, row: Delivery) -> SafeString:
        return figures.when(row.next_attempt_at)

    @admin.display(description="Happened", ordering="id")
    def at(self, row: Delivery) -> SafeString:
        return figures.when(row.created_at)

    @admin.display(description="What is sent")
    def sent(self, row: Delivery) -> SafeString:
        return format_html("<pre>{}</pre>", json.dumps(row.body, indent=2, ensure_ascii=False))

    @admin.display(description="Actions")
    def row_acts(self, row: Delivery) -> SafeString | str:
        return self.row_links(row, "again")
