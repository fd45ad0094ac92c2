"""Waiting: how far each session has been distilled, and why the rest waits."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agentmemory.admin import filters, sessions
from agentmemory.admin.acts import ActingAdmin
from agentmemory.admin.base import ConsoleList, ReadOnlyAdmin
from agentmemory.admin.subjects import MOST_ROWS
from agentmemory.console import diffs, figures, labels, links, permissions
from agentmemory.models import Provider, Session
from distillation.admin import cursor_acts, estimate, strip
from distillation.models import Cursor, DistillationPass, Quarantine
from distillation.querysets import BEHIND
from distillation.services import attempts, operations, redistillation, resolution, states
from sessions_exec.services import heartbeats

PASSES_SHOWN = 200


class WaitingFilter(filters.ChoiceFilter):
    """By the words of `states`, the ones that stand in the list."""

    title = "waiting"
    parameter_name = "waiting"
    options = (
        ("behind", "Behind"),
        ("stuck", "Backing off, blocked or skipped"),
        *((word, word.replace("_", " ").capitalize()) for word in (*states.WORK, states.IDLE)),
    )

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        now = timezone.now()
        if value == "behind":
            return queryset.filter(BEHIND)
        if value == states.RUNNING:
            return queryset.filter(expires_at__gt=now)
        worded: QuerySet[Any] = queryset.alias(word=states.word(now))
        if value == states.IDLE:
            return worded.filter(word=value)
        words = states.STUCK if value == "stuck" else (value,)
        return worded.filter(BEHIND, word__in=words) if value else queryset


class FailedByFilter(filters.WordFilter):
    """Those that wait after a failure of the provider of this name."""

    title = "failed by"
    parameter_name = "failed_by"

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        provider = Provider.objects.filter(name=value).first()
        return queryset.filter(pk__in=operations.after_failures(provider).values("pk")) if provider else queryset.none()


class _StatedList(ConsoleList):
    """The states of a page's rows are found together, not one by one."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows = list(self.result_list)
        now, look = timezone.now(), attempts.look()
        described = states.describe_many(rows, now, private=permissions.reads_private(request))
        for cursor, state in zip(rows, described, strict=True):
            cursor.state, cursor.next = state, attempts.words(cursor, state, look=look, now=now)
        self.result_list = rows


@admin.register(Cursor)
class CursorAdmin(ActingAdmin[Cursor], ReadOnlyAdmin[Cursor]):
    acts = cursor_acts.ACTS
    counted = ("session", "sessions")
    empty_line = "No session yet, so nothing waits."
    list_before_template = "console/waiting_before.html"
    list_display = ("whose", "stated", "lag", "failed", "next_attempt", "last_success", "row_acts")
    list_select_related = ("session", "agent", "agent__space", "agent__provider", "space")
    search_fields = ("session__name__startswith",)
    search_help_text = "The beginning of a session's name"
    ordering = ("due_since", "id")
    list_filter = (
        WaitingFilter,
        filters.word("space", "space__slug"),
        filters.word("agent", "agent__handle"),
        FailedByFilter,
    )

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        route = path("estimate/", wrap(partial(estimate.page, site=self.admin_site)), name="distillation_estimate")
        return [route, *super().get_urls()]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return _StatedList

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return super().changelist_view(request, {"silent": not heartbeats.alive(), **(extra_context or {})})

    def get_queryset(self, request: HttpRequest) -> QuerySet[Cursor]:
        return super().get_queryset(request).select_related(*self.list_select_related)

    def named(self, row: Cursor) -> str:
        return row.session.name

    @admin.display(description="Session", ordering="session__name")
    def whose(self, cursor: Cursor) -> SafeString:
        return format_html(
            '<span class="am-key">{}</span><span class="am-first">{} · {}</span>',
            cursor.session.name,
            cursor.agent.handle,
            cursor.space.slug,
        )

    @admin.display(description="State")
    def stated(self, cursor: Any) -> SafeString:
        return labels.with_line(cursor.state.name.replace("_", " "), cursor.state.line)

    @admin.display(description="Distilled", ordering="position")
    def lag(self, cursor: Cursor) -> SafeString:
        return _lag_bar(cursor)

    @admin.display(description="Failures", ordering="failures")
    def failed(self, cursor: Cursor) -> str:
        return figures.number(cursor.failures) if cursor.failures else figures.NONE

    @admin.display(description="Next attempt", ordering="next_attempt_at")
    def next_attempt(self, cursor: Any) -> SafeString:
        return _next(cursor, cursor.next)

    @admin.display(description="Last success", ordering="last_success_at")
    def last_success(self, cursor: Cursor) -> SafeString:
        return figures.when(cursor.last_success_at, never="never")

    @admin.display(description="Actions")
    def row_acts(self, cursor: Cursor) -> SafeString | str:
        return self.row_links(cursor, "run-now", "clear-backoff")

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """One cursor: its state, a strip of its session with the passes, and what can be done."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        cursor = self.get_queryset(request).filter(pk=object_id).first() if object_id.isdigit() else None
        if cursor is None:
            raise Http404
        now, readable = timezone.now(), permissions.reads_private(request)
        state = states.describe(cursor, now, private=readable)
        passes = list(DistillationPass.objects.filter(cursor=cursor).defer("answer").order_by("-id")[:PASSES_SHOWN])
        held = Quarantine.objects.filter(cursor=cursor, state=Quarantine.State.HELD).order_by("-seq")
        context = {
            **self.admin_site.each_context(request),
            "title": cursor.session.name,
            "opts": self.opts,
            "original": links.Named(cursor, cursor.session.name),
            "cursor": cursor,
            "readable": readable,
            "hidden": permissions.HIDDEN,
            "kind": next((row.failure for row in passes if row.failure), "failed"),
            "state": state,
            "next": _next(cursor, attempts.words(cursor, state, look=attempts.look(), now=now)),
            "lease_over": cursor.expires_at is not None and cursor.expires_at <= now,
            "bar": _lag_bar(cursor),
            "resolved": resolution.resolve(cursor.agent),
            "acts": self.act_links(cursor, request),
            "passes": passes,
            "estimate_url": estimate.of(cursor) if cursor.lag else "",
            **_again(request, cursor),
            "strip": strip.parts(cursor, passes, list(held[:PASSES_SHOWN])),
        }
        return TemplateResponse(request, "console/cursor.html", context)


def _again(request: HttpRequest, cursor: Cursor) -> dict[str, Any]:
    """What the newest order to distil again has brought, and where what it did not confirm can be withdrawn."""
    again = redistillation.newest(cursor)
    if again is None:
        return {}
    found, readable = again.report, permissions.reads_private(request)
    changed = [
        (memory, diffs.words(found.before.get(memory.pk, ""), memory.content) if readable else "")
        for memory in found.changed
    ]
    may = bool(found.not_confirmed) and request.user.has_perm("agentmemory.change_memory")
    going = [memory.pk for memory in found.not_confirmed][:MOST_ROWS]
    here = request.get_full_path()
    return {
        "again": again,
        "changed": changed,
        "withdraw_url": links.act("agentmemory", "memory", "withdraw", going, here) if may else "",
        "withdraws": len(going),
    }


def _next(cursor: Cursor, words: str) -> SafeString:
    """When it is taken up; a time that is over says nothing about that."""
    if words:
        return format_html('<span class="am-line">{}</span>', words)
    later = cursor.next_attempt_at is not None and cursor.next_attempt_at > timezone.now()
    return figures.when(cursor.next_attempt_at if later else None)


def _lag_bar(cursor: Cursor) -> SafeString:
    text = f"{figures.number(cursor.position)} of {figures.number(cursor.watermark)}"
    return figures.bar(cursor.position, cursor.watermark, text=text, tone="blue" if cursor.lag else "green")


def _panel(request: HttpRequest, session: Session) -> sessions.Panel | None:
    """What a session's page says of its distillation, and the line in its conversation."""
    if not request.user.has_perm("distillation.view_cursor"):
        return None
    known = Cursor.objects.select_related("session", "agent", "agent__space", "agent__provider", "space")
    cursor = known.filter(session=session).first()
    if cursor is None:
        return None
    state = states.describe(cursor, timezone.now(), private=permissions.reads_private(request))
    html = format_html(
        '<div class="am-head" id="distillation">{} <span class="am-line">{}</span> {}</div>{}',
        labels.label(state.name.replace("_", " ")),
        state.line,
        links.anchor(links.change("distillation", "cursor", cursor.pk), "Distillation of this session"),
        _lag_bar(cursor),
    )
    return sessions.Panel(html=html, lines={cursor.position: "distilled to here"} if cursor.position else {})


sessions.panels.append(_panel)
