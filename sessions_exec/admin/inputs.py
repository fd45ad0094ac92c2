"""Inputs that wait: admitted, not yet seen by the model, and why not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet, Value
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agentmemory.admin import filters
from agentmemory.admin.acts import Act, ActingAdmin, Asked
from agentmemory.admin.base import ConsoleList, ReadOnlyAdmin
from agentmemory.console import figures, goes, labels, links, permissions
from sessions_exec.admin import sending, waiting
from sessions_exec.leases import ClockTimestamp
from sessions_exec.models import Execution, Input
from sessions_exec.services import operations, standing

RELATED = ("session__agent", "session__execution", "space")


class _PendingList(ConsoleList):
    """What waits. What was promoted is a message of its session; each input keeps its page."""

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        return super().get_queryset(request, exclude_parameters).filter(state=Input.State.PENDING)

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows: list[Any] = list(self.result_list)
        # Of a page's rows together, not one by one.
        found = operations.senders(rows)
        for row in rows:
            row.sender = found.get(row.pk)
        self.result_list = rows


def _cancel(row: Input, asked: Asked) -> str:
    operations.cancel_input(input_id=row.pk, operator=asked.operator, reason=asked.reason)
    return f"The input {row.uid} is taken back."


def _not_seen(request: HttpRequest, rows: Sequence[Input]) -> SafeString:
    sessions = {row.session_id for row in rows}
    return goes.with_it("What the model does not see:", {"inputs": len(rows), "sessions they wait in": len(sessions)})


@admin.register(Input)
class InputAdmin(ActingAdmin[Input], ReadOnlyAdmin[Input]):
    acts: ClassVar[Sequence[Act]] = (
        Act(
            name="cancel",
            label="Cancel input",
            explains="Takes the input back before the model sees it. An input that became a message stays one.",
            run=_cancel,
            preview=_not_seen,
            final="What it says is removed. Its id stays taken.",
            bulk=True,
            danger=True,
            offered=lambda row: row.state == Input.State.PENDING,
        ),
    )
    empty_line = "No input waits. One is sent from a session's page, or with POST /api/v1/sessions/ID/inputs."
    list_display = ("called", "whose", "what", "stated", "since", "row_acts")
    list_select_related = RELATED
    search_fields = ("uid", "session__name")
    ordering = ("id",)
    list_filter = (
        ("delivery", admin.ChoicesFieldListFilter),
        ("kind", admin.ChoicesFieldListFilter),
        filters.word("space", "space__slug"),
        filters.word("agent", "session__agent__handle"),
        filters.word("session", "session__name"),
    )
    readonly_fields = ("called", "stated", "what", "conversation", "since", "settled", "said")
    change_form_outer_before_template = "console/acts_before.html"

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return super().changelist_view(request, {"title": "Inputs that wait", **(extra_context or {})})

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return _PendingList

    def get_urls(self) -> list[URLPattern]:
        own = [
            path("send/<int:session_id>/", self.admin_site.admin_view(sending.send), name="sessions_exec_input_send"),
            path(
                "watch/<int:session_id>/", self.admin_site.admin_view(sending.watch), name="sessions_exec_input_watch"
            ),
        ]
        return [*own, *super().get_urls()]

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        return [name for name in self.readonly_fields if name != "said" or permissions.reads_private(request)]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Input]:
        rows = super().get_queryset(request).select_related(*RELATED)
        return rows.annotate(now=ClockTimestamp(), may_be_read=Value(permissions.reads_private(request)))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        row = self.get_object(request, object_id)
        if row is not None and row.prompt is not None and permissions.reads_private(request):
            permissions.note_look(request, row, row.space)
        shown = {"acts": self.act_links(row, request), "original": links.Named(row, row.uid)} if row else {}
        context = {"title": "Input", **shown, **(extra_context or {})}
        return super().change_view(request, object_id, form_url, context)

    @admin.display(description="Input", ordering="uid")
    def called(self, row: Input) -> SafeString:
        return format_html('<span class="am-key">{}</span>', row.uid)

    @admin.display(description="Session", ordering="session__name")
    def whose(self, row: Input) -> SafeString:
        return waiting.whose(row.session, row.space.slug)

    @admin.display(description="Delivery", ordering="delivery")
    def what(self, row: Input) -> SafeString:
        return format_html('{}<span class="am-first">{}</span>', row.delivery, self._from(row))

    def _from(self, row: Any) -> str:
        """Who sent it: an operator by name, as the record of his act has it. Its id alone would prove nothing."""
        sender = row.sender if hasattr(row, "sender") else operations.senders([row]).get(row.pk)
        return f"from {sender}" if sender else row.get_kind_display()

    @admin.display(description="State")
    def stated(self, row: Any) -> SafeString:
        if row.state != Input.State.PENDING:
            return labels.label(row.state)
        execution: Execution | None = getattr(row.session, "execution", None)
        return labels.with_line("waits", standing.why(row, execution, row.now, private=row.may_be_read))

    @admin.display(description="Admitted", ordering="id")
    def since(self, row: Input) -> SafeString:
        return figures.when(row.created_at)

    @admin.display(description="Settled")
    def settled(self, row: Input) -> SafeString:
        return figures.when(row.settled_at, never="not yet")

    @admin.display(description="Session")
    def conversation(self, row: Input) -> SafeString:
        if row.seq is None:
            return links.anchor(links.session(row.session_id), row.session.name)
        return links.anchor(links.message(row.session_id, row.seq), f"{row.session.name}, message {row.seq}")

    @admin.display(description="What it says")
    def said(self, row: Input) -> SafeString | str:
        if row.prompt is None:
            return "Its message has it." if row.seq is not None else "It was removed."
        return format_html('<pre class="am-content">{}</pre>', waiting.text(row.prompt))

    @admin.display(description="Actions")
    def row_acts(self, row: Input) -> SafeString | str:
        return self.row_links(row, "cancel")
