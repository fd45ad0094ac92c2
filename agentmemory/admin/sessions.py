"""Sessions as conversations, in pieces, with a link to any message."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet, Value
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agentmemory.admin import filters
from agentmemory.admin.base import ReadOnlyAdmin
from agentmemory.console import conversation, figures, labels, links, permissions
from agentmemory.models import Message, Session
from agentmemory.services import inspection, naming

PIECE = 100
# A linked message stands a little below the top of its piece, so that what led to it is in view.
LEAD = 10


NOTHING = SafeString()
UNTITLED = "Only names are looked through for you: titles are made of what was said."


@dataclass(frozen=True, kw_only=True)
class Panel:
    """What another app has to say on a session's page: a part of its head, one below it, lines below messages."""

    html: SafeString = NOTHING
    foot: SafeString = NOTHING
    lines: Mapping[int, str] = field(default_factory=dict)


# Apps further left add to these when their admin is loaded: they know this app, and it knows none of them.
panels: list[Callable[[HttpRequest, Session], Panel | None]] = []
# What can be done to one message: a `label` and a `url` each.
message_acts: list[Callable[[HttpRequest, Message], Sequence[Mapping[str, str]]]] = []


class StatusFilter(filters.ChoiceFilter):
    title = "status"
    parameter_name = "status"
    options = (("active", "Active"), ("complete", "Complete"))

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value not in dict(self.options):
            return queryset
        return queryset.filter(completed_at__isnull=value == "active")


@admin.register(Session)
class SessionAdmin(ReadOnlyAdmin[Session]):
    empty_line = "No session yet: a runner appends messages, or python manage.py import_transcripts brings files in."
    list_before_template = "console/left_out.html"
    list_display = ("session", "whose", "state", "length", "spoken", "made")
    list_select_related = ("space", "agent")
    search_fields = ("name",)
    search_help_text = "The beginning of a name, or words of a newer title"
    ordering = ("-id",)
    list_filter = (StatusFilter, filters.word("space", "space__slug"), filters.word("agent", "agent__handle"))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Session], search_term: str
    ) -> tuple[QuerySet[Session], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        if not permissions.reads_private(request):
            return queryset.filter(name__startswith=term), False
        return Session.objects.called(term, among=queryset), False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Session]:
        # With the rows, since this object serves several requests at a time.
        return super().get_queryset(request).annotate(may_be_read=Value(permissions.reads_private(request)))

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if request.GET.get("q", "").strip() and not permissions.reads_private(request):
            extra_context = {"left_out": UNTITLED, **(extra_context or {})}
        return super().changelist_view(request, extra_context)

    @admin.display(description="Session", ordering="name")
    def session(self, session: Any) -> SafeString:
        title = naming.title(session, private=session.may_be_read)
        return format_html('<span class="am-key">{}</span><span class="am-first">{}</span>', session.name, title)

    @admin.display(description="Agent", ordering="agent__handle")
    def whose(self, session: Session) -> SafeString:
        return format_html('{}<span class="am-first">{}</span>', session.agent.handle, session.space.slug)

    @admin.display(description="State")
    def state(self, session: Session) -> SafeString:
        return labels.label("complete" if session.completed_at else "active")

    @admin.display(description="Messages", ordering="last_seq")
    def length(self, session: Session) -> str:
        return figures.number(session.last_seq)

    @admin.display(description="Last said", ordering="quiet_since")
    def spoken(self, session: Session) -> SafeString:
        return figures.when(session.quiet_since)

    @admin.display(description="Here since", ordering="id")
    def made(self, session: Session) -> SafeString:
        return figures.when(session.created_at)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """One piece of the conversation: from `?from=`, or around `?at=`."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        session = self.get_queryset(request).select_related("space", "agent").filter(pk=_number(object_id)).first()
        if session is None:
            raise Http404
        if permissions.reads_private(request):
            permissions.note_look(request, session, session.space)
        first = max(1, _number(request.GET.get("from")) or _number(request.GET.get("at")) - LEAD)
        context = {
            **self.admin_site.each_context(request),
            "title": naming.title(session, private=permissions.reads_private(request)) or session.name,
            "opts": self.opts,
            "original": links.Named(session, session.name),
            "session": session,
            "hidden": permissions.HIDDEN,
            **self._piece(request, session, first),
        }
        return TemplateResponse(request, "console/session.html", context)

    def _piece(self, request: HttpRequest, session: Session, first: int) -> dict[str, Any]:
        readable = permissions.reads_private(request)
        messages = inspection.conversation(session, first=first, count=PIECE)
        last = messages[-1].seq if messages else first
        said = [panel for panel in (make(request, session) for make in panels) if panel is not None]
        lines = {seq: line for panel in said for seq, line in panel.lines.items()}
        margin = inspection.memories_from(session, first=first, last=last) if readable else {}
        acts = {message.seq: [act for make in message_acts for act in make(request, message)] for message in messages}
        page = links.session(session.pk)
        return {
            "readable": readable,
            "panels": [panel.html for panel in said],
            "feet": [panel.foot for panel in said],
            "here": request.get_full_path(),
            "turns": conversation.turns(
                messages, memories=margin, lines=lines, acts=acts, first=first, readable=readable
            ),
            "left": inspection.messages_left(session),
            # Behind the last one that is there; a further piece tells of its own.
            "missing": session.last_seq - last if messages and len(messages) < PIECE else 0,
            "first": messages[0].seq if messages else 0,
            "last": last if messages else 0,
            "earlier": f"{page}?from={max(1, first - PIECE)}" if first > 1 else "",
            "later": f"{page}?from={last + 1}" if messages and last < session.last_seq else "",
        }


def _number(text: str | None) -> int:
    """A number of at most 18 digits, or 0."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= 18 else 0
