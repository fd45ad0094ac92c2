"""Passes: what was shown, what came back, what became of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet, Value
from django.http import Http404, HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agentmemory.admin import filters, searching
from agentmemory.admin.acts import Act, ActingAdmin, Asked
from agentmemory.admin.base import ReadOnlyAdmin
from agentmemory.console import diffs, figures, labels, links, permissions
from agentmemory.errors import AgentMemoryError
from agentmemory.services import lookup
from agentmemory.services.lookup import Found
from distillation.admin import cost
from distillation.models import DistillationPass
from distillation.services import reapplying, replay

CHARS_OF_AN_ANSWER = 60_000


def _apply_again(row: DistillationPass, asked: Asked) -> str:
    planned = reapplying.carry_out(pass_id=row.pk, operator=asked.operator, reason=asked.reason)
    return f"Pass {row.pk} was applied again: {_counted(planned)}."


def _counted(planned: Sequence[reapplying.Planned]) -> str:
    counts = reapplying.counts(planned)
    return ", ".join(f"{count} {action}" for action, count in sorted(counts.items())) or "it holds nothing"


def _would_do(request: HttpRequest, rows: Sequence[DistillationPass]) -> SafeString:
    """What applying each pass again would do now, with a word diff for those who may read it."""
    try:
        planned = [each for row in rows for each in reapplying.plan(pass_id=row.pk)]
    except AgentMemoryError as error:
        return format_html('<p class="am-warning">{}</p>', error)
    readable = permissions.reads_private(request)
    shown = [
        {
            "planned": each,
            "url": links.memory(each.memory_id) if each.memory_id and each.action != "created" else "",
            "diff": diffs.words(each.before, each.after) if readable else "",
        }
        for each in planned
    ]
    context = {"shown": shown, "counted": _counted(planned), "readable": readable, "hidden": permissions.HIDDEN}
    return render_to_string("console/planned.html", context)


@admin.register(DistillationPass)
class PassAdmin(ActingAdmin[DistillationPass], ReadOnlyAdmin[DistillationPass]):
    acts: ClassVar[Sequence[Act]] = (
        Act(
            name="apply-again",
            label="Apply again",
            button="Apply it again",
            explains="Makes memories of the stored answer once more, by the rules of today: no model is called and no "
            "position moves. Curated memories, and those that a person has edited or withdrawn, are left alone.",
            run=_apply_again,
            final="It is not undone all at once: each memory keeps its versions, and Restore writes one of them again.",
            preview=_would_do,
            offered=lambda row: not reapplying.obstacle(row),
        ),
    )
    empty_line = "No pass yet: a finished turn is distilled at the next tick of a running task cluster."
    list_display = ("number", "ended", "whose", "became", "by", "used", "started")
    list_select_related = ("space", "agent")
    search_fields = ("session_name__startswith",)
    search_help_text = "The beginning of a session's name, or a pass's number"
    ordering = ("-id",)
    list_filter = (
        ("outcome", admin.ChoicesFieldListFilter),
        filters.word("space", "space__slug"),
        filters.word("agent", "agent__handle"),
        filters.word("provider", "provider_name"),
        filters.word("failure", "failure"),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[DistillationPass]:
        # An answer can be long, and no list shows it.
        rows = super().get_queryset(request).defer("answer")
        return rows.annotate(may_be_read=Value(permissions.reads_private(request)))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[DistillationPass], search_term: str
    ) -> tuple[QuerySet[DistillationPass], bool]:
        term = search_term.strip()
        if term.isascii() and term.isdigit() and len(term) <= 18:
            return queryset.filter(Q(pk=term) | Q(session_name=term)), False
        return super().get_search_results(request, queryset, search_term)

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("cost/", wrap(partial(cost.page, site=self.admin_site)), name="distillation_cost"),
            path("cost/csv/", wrap(cost.as_csv), name="distillation_cost_csv"),
            *super().get_urls(),
        ]

    def named(self, row: DistillationPass) -> str:
        return f"pass {row.pk} over {row.session_name}"

    @admin.display(description="Pass", ordering="id")
    def number(self, row: DistillationPass) -> str:
        return f"{row.pk}"

    @admin.display(description="Outcome", ordering="outcome")
    def ended(self, row: Any) -> SafeString:
        # An error may quote what was read or answered.
        tells = row.may_be_read and row.outcome == DistillationPass.Outcome.FAILED
        first = row.error.split("\n", 1)[0][:120] if tells else ""
        return labels.with_line(row.outcome, first or row.failure)

    @admin.display(description="Session", ordering="session_name")
    def whose(self, row: DistillationPass) -> SafeString:
        window = f"{row.start + 1}\u2013{row.end}" if row.end > row.start else "no message"
        return format_html(
            '<span class="am-key">{}</span><span class="am-first">{} · {}</span>', row.session_name, row.agent, window
        )

    @admin.display(description="Written")
    def became(self, row: DistillationPass) -> SafeString:
        refused = f"{len(row.refused)} refused" if row.refused else ""
        return format_html('{}<span class="am-first">{}</span>', len(row.written), refused)

    @admin.display(description="By")
    def by(self, row: DistillationPass) -> SafeString:
        return format_html('{}<span class="am-first">{}</span>', row.provider_name or figures.NONE, row.model)

    @admin.display(description="Tokens in / out", ordering="cost")
    def used(self, row: DistillationPass) -> SafeString:
        tokens = f"{figures.number(row.input_tokens)} / {figures.number(row.output_tokens)}"
        return format_html('{}<span class="am-first">{}</span>', tokens, figures.money(row.cost))

    @admin.display(description="Started", ordering="started_at")
    def started(self, row: DistillationPass) -> SafeString:
        took = f"took {figures.duration(row.seconds)}" if row.seconds is not None else ""
        return format_html('{}<span class="am-first">{}</span>', figures.when(row.started_at), took)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """One pass: the outcome first, then its window, its answer and what became of it."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        rows = DistillationPass.objects.select_related("space", "agent", "agent__space", "session", "cursor")
        row = rows.filter(pk=object_id).first() if object_id.isdigit() else None
        if row is None:
            raise Http404
        readable = permissions.reads_private(request)
        if readable:
            permissions.note_look(request, row, row.space)
        context = {
            **self.admin_site.each_context(request),
            "title": f"Pass {row.pk}",
            "opts": self.opts,
            "original": row,
            "row": row,
            "readable": readable,
            "hidden": permissions.HIDDEN,
            "cursor_url": links.change("distillation", "cursor", row.cursor_id) if row.cursor_id else "",
            "acts": self.act_links(row, request),
            "session_url": links.message(row.session_id, row.start + 1) if row.session_id else "",
            **(_content(row) if readable else {}),
        }
        return TemplateResponse(request, "console/pass.html", context)


def _by_number(words: str, readable: bool) -> list[Found]:
    pk = lookup.number(words.lower().removeprefix("pass").strip())
    rows = DistillationPass.objects.filter(pk=pk).select_related("agent").defer("answer") if pk is not None else ()
    return [
        Found(row=row, title=f"Pass {row.pk}", line=f"{row.session_name} · {row.agent.handle}", states=[row.outcome])
        for row in rows
    ]


searching.kinds.append(
    searching.Kind(
        title="Passes",
        icon="filter_alt",
        needs="distillation.view_distillationpass",
        find=_by_number,
        listed="distillation_distillationpass",
    )
)


def _content(row: DistillationPass) -> dict[str, Any]:
    window = replay.window_of(row)
    return {
        "shown": window.shown if window else (),
        "erased": replay.erased_since(row),
        "prompt": replay.prompt_of(row),
        "pretty": _pretty(row.answer),
        "raw": row.answer[:CHARS_OF_AN_ANSWER],
        "cut": max(0, len(row.answer) - CHARS_OF_AN_ANSWER),
        "written": [_entry(item) for item in row.written],
        "refused": [_entry(item) for item in row.refused],
    }


def _entry(item: Any) -> dict[str, Any]:
    """One candidate as its row keeps it, with a link to the memory it became."""
    known = item if isinstance(item, dict) else {"content": str(item)}
    memory = known.get("memory") or known.get("id")
    action = known.get("action") or known.get("outcome") or ""
    return {
        "key": known.get("key") or "",
        "content": known.get("content") or "",
        "reason": known.get("reason") or "",
        "action": action,
        "version": known.get("version"),
        "url": links.memory(memory) if memory else "",
    }


def _pretty(answer: str) -> str:
    """The answer's object with its indentation; nothing where it is no JSON."""
    if len(answer) > CHARS_OF_AN_ANSWER:
        return ""
    at, end = answer.find("{"), answer.rfind("}")
    try:
        return json.dumps(json.loads(answer[at : end + 1]), ensure_ascii=False, indent=2) if 0 <= at < end else ""
    except (ValueError, RecursionError):
        return ""
