"""Messages: found by their uid, shown in their conversation, taken back with a word on what rests on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet, Value
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agentmemory.admin import filters, sessions
from agentmemory.admin.acts import Act, ActingAdmin, Asked
from agentmemory.admin.base import ReadOnlyAdmin
from agentmemory.console import figures, labels, links, permissions
from agentmemory.models import Message
from distillation.services import taking_back
from distillation.services.reconciliation import Change

_WORDS = {"stays": "kept", "returns": "back at an earlier version", "withdrawn": "withdrawn"}


def _retract(message: Message, asked: Asked) -> str:
    changes = taking_back.retract(message_id=message.pk, operator=asked.operator, reason=asked.reason)
    return f"Message {message.seq} is retracted. {_counted(changes)}"


def _delete(message: Message, asked: Asked) -> str:
    changes = taking_back.delete(message_id=message.pk, operator=asked.operator, reason=asked.reason)
    return f"Message {message.seq} is deleted. {_counted(changes)}"


def _counted(changes: Sequence[Change]) -> str:
    counts = taking_back.counts(changes)
    said = ", ".join(f"{count} {_WORDS[action]}" for action, count in sorted(counts.items()))
    return f"Memories that rest on it: {said}." if said else "No memory rests on it."


def _touches(request: HttpRequest, rows: Sequence[Message]) -> SafeString:
    changes = taking_back.plan(messages=rows)
    context = {"changes": changes, "counted": _counted(changes), "private": permissions.reads_private(request)}
    return render_to_string("console/touched.html", context)


@admin.register(Message)
class MessageAdmin(ActingAdmin[Message], ReadOnlyAdmin[Message]):
    acts: ClassVar[Sequence[Act]] = (
        Act(
            name="retract",
            label="Retract",
            explains="Takes back what was said. The message stays in its conversation, struck through with the reason; "
            "it is no longer distilled, and memories that rest on it alone are withdrawn.",
            final="A retraction cannot be taken back.",
            run=_retract,
            preview=_touches,
            bulk=True,
            offered=lambda message: message.retracted_at is None,
        ),
        Act(
            name="delete",
            label="Delete",
            explains="Removes the message from its conversation and from search. Memories that rest on it alone are "
            "withdrawn.",
            final="It is gone for good: only a backup has it then. Its number is not used again.",
            run=_delete,
            preview=_touches,
            bulk=True,
            danger=True,
            gone=True,
        ),
    )
    empty_line = "No message yet."
    list_display = ("place", "kind", "standing", "length", "came")
    list_select_related = ("session", "session__agent", "space")
    search_fields = ("uid__exact",)
    search_help_text = "The uid of a message"
    ordering = ("-id",)
    list_filter = (
        filters.word("space", "space__slug"),
        filters.word("agent", "session__agent__handle"),
        filters.word("session", "session__name"),
        ("type", admin.ChoicesFieldListFilter),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Message]:
        # What was said is read in its conversation, where looking is noted.
        rows = super().get_queryset(request).select_related(*self.list_select_related).defer("content")
        return rows.annotate(may_be_read=Value(permissions.reads_private(request)))

    def named(self, row: Message) -> str:
        return f"message {row.seq} of {row.session.name}"

    @admin.display(description="Message", ordering="id")
    def place(self, message: Message) -> SafeString:
        return format_html(
            '<span class="am-key">{} · {}</span><span class="am-first">{}</span>',
            message.session.name,
            message.seq,
            message.uid,
        )

    @admin.display(description="Type", ordering="type")
    def kind(self, message: Message) -> str:
        return message.type

    @admin.display(description="State")
    def standing(self, message: Any) -> SafeString | str:
        if message.retracted_at is not None:
            return labels.with_line("taken back", message.retraction_reason if message.may_be_read else "")
        return f"superseded by {message.superseded_by}" if message.superseded_by else figures.NONE

    @admin.display(description="Characters")
    def length(self, message: Message) -> str:
        return figures.number(len(message.text))

    @admin.display(description="Came", ordering="id")
    def came(self, message: Message) -> SafeString:
        return figures.when(message.created_at)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """A message has no page of its own: it is read in its conversation."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        message = Message.objects.filter(pk=object_id).first() if object_id.isdigit() else None
        if message is None:
            raise Http404
        return HttpResponseRedirect(links.message(message.session_id, message.seq))


def _beside(request: HttpRequest, message: Message) -> Sequence[Mapping[str, str]]:
    """What can be done to a message from where it stands in its conversation."""
    if not request.user.has_perm("agentmemory.change_message"):
        return ()
    here = links.message(message.session_id, message.seq)
    return [
        {"label": act.label, "url": links.act("agentmemory", "message", act.name, [message.pk], here)}
        for act in MessageAdmin.acts
        if act.offered(message)
    ]


sessions.message_acts.append(_beside)
