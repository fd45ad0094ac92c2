"""Merges and withdrawals: what consolidation did, with its undoing, and what it would do next (M9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import admin, messages
from django.core import signing
from django.core.exceptions import PermissionDenied
from django.db.models import F, Q, QuerySet, Value
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from agentmemory.admin import filters, once
from agentmemory.admin.acts import Act, ActingAdmin, Asked, AskForm, Did, Undo
from agentmemory.admin.base import ReadOnlyAdmin
from agentmemory.authorship import CONSOLIDATION, Author
from agentmemory.console import figures, labels, links, permissions
from agentmemory.models import Consolidation, Memory
from agentmemory.services import consolidation, consolidation_plans, naming, spaces

SALT = "consolidation-plan"
GOOD_FOR_SECONDS = 3600
# Each memory takes two searches: somebody waits for the page, and goes on from where it ended.
SECONDS_A_PAGE = 0.15
IN_FORCE = (
    Q(kind="merge", memory__merged_into=F("other"))
    | Q(kind="link", memory__repeats=F("other"))
    | Q(kind="forget", memory__withdrawn_by=str(CONSOLIDATION))
)


class StateFilter(filters.ChoiceFilter):
    title = "state"
    parameter_name = "state"
    options = (("force", "In force"), ("undone", "Undone"))

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value == "force":
            return queryset.filter(IN_FORCE, undone_at__isnull=True)
        return queryset.filter(undone_at__isnull=False) if value == "undone" else queryset


# The acts that do to a memory what consolidation did.
_DONE_BY = {
    Consolidation.Kind.MERGE.value: "merge",
    Consolidation.Kind.LINK.value: "link",
    Consolidation.Kind.FORGET.value: "withdraw",
}


def _undo(row: Any, asked: Asked) -> Did:
    memory = consolidation.undo(consolidation_id=row.pk, author=asked.author, reason=asked.reason)
    into = {"into": row.other.key} if row.kind == Consolidation.Kind.MERGE and row.other is not None else {}
    called = naming.memory(memory, private=row.may_be_read)
    return Did(said=f"{called} stands by itself again.", undo=Undo(act=_DONE_BY[row.kind], row=memory, values=into))


def _in_force(row: Any) -> bool:
    if row.undone_at is not None:
        return False
    memory = row.memory
    if row.kind == Consolidation.Kind.FORGET:
        return bool(memory.withdrawn_at is not None and memory.withdrawn_by == str(CONSOLIDATION))
    target = memory.merged_into_id if row.kind == Consolidation.Kind.MERGE else memory.repeats_id
    return bool(target == row.other_id)


@admin.register(Consolidation)
class ConsolidationAdmin(ActingAdmin[Consolidation], ReadOnlyAdmin[Consolidation]):
    acts: ClassVar[Sequence[Act]] = (
        Act(
            name="undo",
            label="Undo",
            explains="Lets the memory stand by itself again, as it was. Consolidation does not do it again.",
            run=_undo,
            back="by hand, from the memory itself: Merge, Keep the curated one or Withdraw.",
            bulk=True,
            offered=_in_force,
        ),
    )
    counted = ("act", "acts")
    empty_line = "Nothing was merged, linked or forgotten yet. Consolidation looks once a day; see the dry run."
    list_display = ("what", "which", "stands_for_it", "because", "who", "when", "state", "row_acts")
    list_display_links = None
    list_select_related = ("memory__owner", "other__owner", "space")
    search_fields = ("memory__key__exact",)
    search_help_text = "A key"
    ordering = ("-id",)
    list_filter = (("kind", admin.ChoicesFieldListFilter), StateFilter, filters.word("space", "space__slug"))
    fields = ("what", "which", "stands_for_it", "because", "who", "when", "state")
    readonly_fields = fields
    list_before_template = "console/consolidation_before.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Consolidation]:
        rows = super().get_queryset(request).select_related(*self.list_select_related)
        rows = rows.annotate(may_be_read=Value(permissions.reads_private(request)))
        return rows.defer("memory__search", "memory__content", "other__search", "other__content")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Consolidation], search_term: str
    ) -> tuple[QuerySet[Consolidation], bool]:
        if not (key := search_term.strip()):
            return queryset, False
        # A list that answers is a way of reading: without the right to, only what is shared is looked for.
        known = Memory.objects.all() if permissions.reads_private(request) else Memory.objects.filter(owner=None)
        meant = list(known.filter(key=key).values_list("pk", flat=True)[: filters.MOST_MEANT])
        return queryset.filter(Q(memory__in=meant) | Q(other__in=meant)), False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if request.GET.get("q", "").strip() and not permissions.reads_private(request):
            extra_context = {"left_out": permissions.SHARED_ONLY, **(extra_context or {})}
        return super().changelist_view(request, extra_context)

    def named(self, row: Any) -> str:
        return f"{row.get_kind_display()}: {naming.memory(row.memory, private=row.may_be_read)}"

    @admin.display(description="What", ordering="kind")
    def what(self, row: Consolidation) -> SafeString:
        return labels.label(row.get_kind_display())

    @admin.display(description="Memory")
    def which(self, row: Any) -> SafeString:
        return links.anchor(links.memory(row.memory_id), naming.memory(row.memory, private=row.may_be_read))

    @admin.display(description="Stands for it")
    def stands_for_it(self, row: Any) -> SafeString | str:
        if row.other is None:
            return figures.NONE
        return links.anchor(links.memory(row.other_id), naming.memory(row.other, private=row.may_be_read))

    @admin.display(description="Why")
    def because(self, row: Any) -> SafeString:
        # A reason may name what it is about.
        readable = naming.readable(row.memory, private=row.may_be_read)
        return labels.lines(row.why, row.reason if readable else "")

    @admin.display(description="Who", ordering="author")
    def who(self, row: Consolidation) -> str:
        return row.author

    @admin.display(description="When", ordering="id")
    def when(self, row: Consolidation) -> SafeString:
        return figures.when(row.at)

    @admin.display(description="State")
    def state(self, row: Any) -> SafeString:
        if row.undone_at is not None:
            readable = naming.readable(row.memory, private=row.may_be_read)
            return labels.with_line("undone", f"by {row.undone_by}" + (f": {row.undone_reason}" if readable else ""))
        return labels.label("in force" if _in_force(row) else "ended by itself")

    @admin.display(description="Actions")
    def row_acts(self, row: Consolidation) -> SafeString | str:
        return self.row_links(row, "undo")

    def get_urls(self) -> list[URLPattern]:
        route = path(
            "dry-run/", self.admin_site.admin_view(self.dry_run_view), name="agentmemory_consolidation_dry_run"
        )
        return [route, *super().get_urls()]

    def dry_run_view(self, request: HttpRequest) -> HttpResponse:
        """What would be done next and why, by keys; on an answer with a reason exactly that is done."""
        if not (self.may_act(request) and permissions.reads_private(request)):
            raise PermissionDenied
        form = AskForm(request.POST if request.method == "POST" else None)
        signed = request.POST.get("plan", "")
        if request.method == "POST" and form.is_valid():
            if not once.claim(request):
                messages.warning(request, once.AGAIN)
                return HttpResponseRedirect(reverse("admin:agentmemory_consolidation_changelist"))
            try:
                plan = consolidation_plans.Plan.of_json(signing.loads(signed, salt=SALT, max_age=GOOD_FOR_SECONDS))
            except signing.BadSignature:
                messages.error(request, "The plan is too old: here is a new one.")
                return HttpResponseRedirect(request.get_full_path())
            author = Author(kind="operator", name=request.user.get_username())
            report = consolidation.run(plan=plan, author=author, reason=form.cleaned_data["reason"])
            messages.success(request, f"{report}.")
            return HttpResponseRedirect(reverse("admin:agentmemory_consolidation_changelist"))
        space = spaces.find(request.GET.get("space", ""))
        after = _uuid(request.GET.get("after", ""))
        plan = consolidation_plans.plan(space=space, after=after, seconds=SECONDS_A_PAGE)
        further = {**request.GET.dict(), "after": str(plan.next)} if plan.next and plan.looked else {}
        context = {
            **self.admin_site.each_context(request),
            "title": "Dry run of consolidation",
            "opts": self.opts,
            "plan": plan,
            "further": f"?{urlencode(further)}" if further else "",
            "signed": signing.dumps(plan.as_json(), salt=SALT, compress=True),
            "form": form,
            "back": reverse("admin:agentmemory_consolidation_changelist"),
        }
        return TemplateResponse(request, "console/consolidation.html", context, status=422 if form.errors else 200)


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
