"""Recoveries: what was found where a holder was heard of no more, and what was done (S7 to S9)."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agentmemory.admin import filters
from agentmemory.admin.base import ReadOnlyAdmin
from agentmemory.console import figures, labels, links
from agentmemory.models import Message
from sessions_exec.admin import waiting
from sessions_exec.models import Recovery

RELATED = ("session__agent", "space", "continuation")


@admin.register(Recovery)
class RecoveryAdmin(ReadOnlyAdmin[Recovery]):
    empty_line = "Nothing had to be recovered: every runner has given its session back."
    list_display = ("whose", "stated", "held_by", "found", "done", "at")
    list_select_related = RELATED
    search_fields = ("session__name", "holder")
    ordering = ("-id",)
    list_filter = (
        ("outcome", admin.ChoicesFieldListFilter),
        ("phase", admin.ChoicesFieldListFilter),
        filters.word("space", "space__slug"),
        filters.word("agent", "session__agent__handle"),
        filters.word("session", "session__name"),
    )
    fields = ("stated", "whose", "held_by", "expired", "found", "uncertain", "calls", "done", "at")
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[Recovery]:
        said = Message.objects.filter(session=OuterRef("session"), uid=OuterRef("message_uid")).order_by()
        rows = super().get_queryset(request).select_related(*RELATED)
        return rows.annotate(message_seq=Subquery(said.values("seq")[:1]))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        row = self.get_object(request, object_id)
        named = {"original": links.Named(row, f"{row.session.name}, epoch {row.epoch}")} if row else {}
        context = {"title": "Recovery", **named, **(extra_context or {})}
        return super().change_view(request, object_id, form_url, context)

    @admin.display(description="Session", ordering="session__name")
    def whose(self, row: Recovery) -> SafeString:
        return waiting.whose(row.session, row.space.slug)

    @admin.display(description="State", ordering="outcome")
    def stated(self, row: Recovery) -> SafeString:
        if row.outcome == Recovery.Outcome.FAILED:
            return labels.with_line("failed", "recovered once too often: the turn was ended")
        return labels.label("recovered")

    @admin.display(description="Holder", ordering="holder")
    def held_by(self, row: Recovery) -> SafeString:
        return format_html(
            '<span class="am-key">{}</span><span class="am-first">epoch {}</span>', row.holder, row.epoch
        )

    @admin.display(description="Expired", ordering="expired_at")
    def expired(self, row: Recovery) -> SafeString:
        return figures.when(row.expired_at)

    @admin.display(description="What was found", ordering="phase")
    def found(self, row: Recovery) -> SafeString:
        calls = len(row.tool_calls)
        line = f"{calls} tool call{'' if calls == 1 else 's'} of unknown outcome" if calls else ""
        return waiting.phase(row.phase, line)

    @admin.display(description="What was done")
    def done(self, row: Recovery) -> SafeString | str:
        if row.continuation is None:
            return row.get_outcome_display()
        url = links.change("sessions_exec", "input", row.continuation.pk)
        return format_html("{} {}", links.anchor(url, "an input asks to go on:"), labels.label(row.continuation.state))

    @admin.display(description="The message that says so")
    def uncertain(self, row: Any) -> SafeString | str:
        made = "made by the recovery" if row.synthetic else "marked as an error"
        if row.message_seq is None:
            return f"{row.message_uid}, removed since"
        anchor = links.anchor(links.message(row.session_id, row.message_seq), f"message {row.message_seq}")
        return format_html('{} <span class="am-line">{}</span>', anchor, made)

    @admin.display(description="Tool calls of unknown outcome")
    def calls(self, row: Recovery) -> SafeString | str:
        return labels.chips([str(call) for call in row.tool_calls], most=100)

    @admin.display(description="Recovered", ordering="id")
    def at(self, row: Recovery) -> SafeString:
        return figures.when(row.recovered_at)
