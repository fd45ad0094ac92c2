"""Memories: browse, compare, curate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django.contrib import admin
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Count, OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agentmemory.admin import filters, memory_filters
from agentmemory.admin.acts import Act, ActingAdmin
from agentmemory.admin.base import ReadOnlyAdmin
from agentmemory.admin.memory_acts import ACTS
from agentmemory.callers import Caller
from agentmemory.console import diffs, figures, labels, links, markup, permissions
from agentmemory.models import Memory, MemorySource
from agentmemory.search import lexical, marking, ranking
from agentmemory.services import inspection, naming
from agentmemory.services.lookup import IN_CONTEXT

PAIRS_SHOWN = 20
QUERY_LENGTH = 500
RANKS_SHOWN = 50


@admin.register(Memory)
class MemoryAdmin(ActingAdmin[Memory], ReadOnlyAdmin[Memory]):
    """Looking counts no use, and every change is an act of a service with a reason."""

    acts: ClassVar[Sequence[Act]] = ACTS
    empty_line = "No memory yet: agents write them with a token, and distillation takes them out of transcripts."
    list_before_template = "console/left_out.html"
    list_display = ("memory", "state", "owned", "tagged", "sourced", "used", "changed")
    list_display_links = ("memory",)
    list_select_related = ("space", "owner")
    search_fields = ("key",)
    search_help_text = "All words of content, key and tags, or an id"
    ordering = ("-updated_at", "-id")
    list_filter = (
        memory_filters.Standing,
        ("origin", admin.ChoicesFieldListFilter),
        filters.word("space", "space__slug"),
        memory_filters.OwnedBy,
        filters.TagFilter,
        memory_filters.FromSession,
        memory_filters.Age,
        memory_filters.Use,
        memory_filters.Notice,
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Memory]:
        # What a row shows of use and sources is counted in its own statement's row, not one by one.
        sources = MemorySource.objects.filter(memory=OuterRef("pk")).order_by().values("memory")
        return (
            Memory.objects.with_use()
            .annotate(
                source_count=Coalesce(Subquery(sources.annotate(n=Count("pk")).values("n")), 0),
                # With the rows, since this object serves several requests at a time.
                may_be_read=Value(permissions.reads_private(request)),
            )
            .order_by("-updated_at", "-id")
        )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Memory], search_term: str
    ) -> tuple[QuerySet[Memory], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        if _is_id(term):
            return queryset.filter(pk=term), False
        # A search that answers is a way of reading: without the right to, only what is shared is searched.
        readable = queryset if permissions.reads_private(request) else queryset.filter(owner__isnull=True)
        return lexical.holding(readable, term).annotate(in_view=lexical.is_in_view(term)), False

    def arranged(self, rows: Sequence[Memory], words: str) -> Sequence[Memory]:
        """Those that match by their context alone come last, and each shows where the words are."""
        marks = marking.pattern(words) if words else None
        shown: list[Any] = list(rows)
        for row in shown:
            row.marks = marks
        return sorted(shown, key=lambda row: not getattr(row, "in_view", True))

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if permissions.reads_private(request):
            if self.has_view_permission(request):
                permissions.note_list(request, Memory)
        elif any(request.GET.get(name, "").strip() for name in ("q", "tag")):
            extra_context = {"left_out": permissions.SHARED_ONLY, **(extra_context or {})}
        return super().changelist_view(request, extra_context)

    def named(self, row: Any) -> str:
        return naming.memory(row, private=row.may_be_read)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if self.has_view_permission(request) and not permissions.reads_private(request):
            row = self._one(object_id, may_be_read=False)
            told = {"title": f"Change history: {self.named(row)}", "object": links.Named(row, self.named(row))}
            extra_context = {**(extra_context or {}), **told}
        return super().history_view(request, object_id, extra_context)

    @admin.display(description="Memory", ordering="key")
    def memory(self, memory: Any) -> SafeString:
        readable = naming.readable(memory, private=memory.may_be_read)
        first = memory.content.strip().split("\n", 1)[0][:160] if readable else "private"
        marks = getattr(memory, "marks", None)
        if marks is not None and readable:
            first = markup.bold(marking.excerpt(memory.content, marks), marks)
        why = "" if getattr(memory, "in_view", True) else format_html('<span class="am-line">{}</span>', IN_CONTEXT)
        called = self.named(memory)
        return format_html('<span class="am-key">{}</span><span class="am-first">{}</span>{}', called, first, why)

    @admin.display(description="Origin")
    def state(self, memory: Memory) -> SafeString:
        marks = [labels.label(memory.origin)]
        standing = _standing(memory)
        if standing:
            marks.append(labels.label(standing))
        if memory.pinned:
            marks.append(format_html('<span class="am-line">{}</span>', "pinned"))
        return format_html('<span class="am-chips">{}</span>', SafeString("".join(marks)))

    @admin.display(description="Owner", ordering="owner__handle")
    def owned(self, memory: Memory) -> SafeString:
        owner = memory.owner.handle if memory.owner else "shared"
        return format_html('{}<span class="am-first">{}</span>', owner, memory.space.slug)

    @admin.display(description="Tags")
    def tagged(self, memory: Any) -> SafeString | str:
        return labels.chips(memory.tags if naming.readable(memory, private=memory.may_be_read) else [], most=3)

    @admin.display(description="Sources")
    def sourced(self, memory: Any) -> str:
        return figures.number(memory.source_count) if memory.source_count else figures.NONE

    @admin.display(description="Used")
    def used(self, memory: Any) -> SafeString:
        return format_html(
            "{} {}", figures.number(memory.access_count), figures.when(memory.last_accessed_at, never="")
        )

    @admin.display(description="Updated", ordering="updated_at")
    def changed(self, memory: Memory) -> SafeString:
        return figures.when(memory.updated_at)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """One memory with its sources, its history and the other one of its key."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        private = permissions.reads_private(request)
        memory = self._one(object_id, may_be_read=private)
        readable = naming.readable(memory, private=private)
        context = {
            **self.admin_site.each_context(request),
            "title": self.named(memory),
            "opts": self.opts,
            "original": links.Named(memory, self.named(memory)),
            "memory": memory,
            "private": private,
            "standing": _standing(memory),
            "acts": self.act_links(memory, request),
            "readable": readable,
            "hidden": permissions.HIDDEN,
        }
        if readable and memory.owner_id is not None:
            permissions.note_look(request, memory, memory.space)
        if readable:
            context |= self._readable(memory, self.may_act(request), private=private)
            context |= _found_by(memory, request.GET.get("q", "").strip()[:QUERY_LENGTH])
        return TemplateResponse(request, "console/memory.html", context)

    def get_urls(self) -> list[URLPattern]:
        route = path("compare/", self.admin_site.admin_view(self.compare_view), name="agentmemory_memory_compare")
        return [route, *super().get_urls()]

    def compare_view(self, request: HttpRequest) -> HttpResponse:
        """Pairs of curated and distilled memories of one key that say different things."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        readable = permissions.reads_private(request)
        if readable:
            permissions.note_list(request, Memory)
        context = {
            **self.admin_site.each_context(request),
            "title": "Compare curated and distilled",
            "opts": self.opts,
            "readable": readable,
            "hidden": permissions.HIDDEN,
            "pairs": [self._pair(request, *pair) for pair in inspection.pairs(PAIRS_SHOWN)] if readable else [],
        }
        return TemplateResponse(request, "console/compare.html", context)

    def _pair(self, request: HttpRequest, curated: Memory, distilled: Memory) -> dict[str, Any]:
        here = request.get_full_path()
        links_to = {
            "keep_url": self.act_url("link", [distilled.pk], next=here),
            "promote_url": self.act_url("promote", [distilled.pk], next=here),
            "both_url": self.act_url("both", [distilled.pk], next=here),
        }
        return {
            "curated": curated,
            "distilled": distilled,
            "diff": diffs.words(curated.content, distilled.content),
            **(links_to if self.may_act(request) else {}),
        }

    def _one(self, object_id: str, *, may_be_read: bool) -> Any:
        try:
            others = ("space", "owner", "merged_into__owner", "repeats__owner")
            rows = Memory.objects.with_use().with_merged().select_related(*others)
            return rows.annotate(may_be_read=Value(may_be_read)).defer("search").get(pk=object_id)
        except (Memory.DoesNotExist, ValidationError):
            raise Http404 from None

    def _readable(self, memory: Memory, may_act: bool, *, private: bool) -> dict[str, Any]:
        other = inspection.the_other_one(memory)
        timeline = [
            {
                "version": version,
                "diff": None
                if version.previous in (None, version.content)
                else diffs.words(version.previous or "", version.content),
                "restore": self.act_url("restore", [memory.pk], version=version.event.version)
                if may_act and version.event.version != memory.version and memory.deleted_at is None
                else "",
            }
            for version in inspection.history(memory)
        ]
        return {
            # Its sources are transcripts, which are private while what was made of them is shared.
            "quotations": inspection.quotations(memory) if private else (),
            "timeline": timeline,
            "other": other,
            "other_url": links.memory(other.pk) if other else "",
            "other_diff": diffs.words(memory.content, other.content) if other else None,
            "alike": other is not None and other.content == memory.content,
            "promote_url": self._promotes(memory, other) if may_act else "",
        }

    def _promotes(self, memory: Memory, other: Memory | None) -> str:
        """Where the distilled one is promoted; nowhere where both say the same."""
        if other and other.content == memory.content:
            return ""
        distilled = next((row for row in (memory, other) if row and row.origin == Memory.Origin.DISTILLED), None)
        return self.act_url("promote", [distilled.pk]) if distilled else ""


def _found_by(memory: Memory, q: str) -> dict[str, Any]:
    """What its owner would find with a query, and at which rank and by which words this memory is among it."""
    if not q:
        return {}
    caller = Caller(space=memory.space, agent=memory.owner)
    found = ranking.search(caller=caller, q=q, limit=RANKS_SHOWN, explain=True, count_access=False)
    places = [(rank, item) for rank, item in enumerate(found.items, start=1) if item.memory.pk == memory.pk]
    return {"q": q, "found": found.items[:10], "most": RANKS_SHOWN, "place": places[0] if places else None}


def _standing(memory: Memory) -> str:
    if memory.deleted_at is not None:
        return "deleted"
    if memory.merged_into_id is not None:
        return "merged"
    if memory.withdrawn_at is not None:
        return "withdrawn"
    if memory.repeats_id is not None:
        return "linked"
    return "expired" if memory.expires_at and memory.expires_at <= timezone.now() else ""


def _is_id(term: str) -> bool:
    compact = term.replace("-", "")
    return len(compact) == 32 and all(letter in "0123456789abcdefABCDEF" for letter in compact)
