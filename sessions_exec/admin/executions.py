"""Live executions: who runs which session, in which phase, for how much longer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agentmemory.admin import filters
from agentmemory.admin.acts import Act, ActingAdmin, Asked, AskForm
from agentmemory.admin.base import ConsoleList, ReadOnlyAdmin
from agentmemory.console import figures, goes, labels, links
from sessions_exec.admin import waiting
from sessions_exec.leases import ClockTimestamp
from sessions_exec.models import Execution, Input, Recovery, SessionEvent
from sessions_exec.services import operations, standing

RECOVERIES_SHOWN = 20
EVENTS_SHOWN = 50
RELATED = ("session__agent", "space")


class StateFilter(filters.ChoiceFilter):
    title = "state"
    parameter_name = "state"
    options = (("live", "Live"), ("expired", "Expired"))

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value == "live":
            return queryset.filter(expires_at__gt=ClockTimestamp())
        return queryset.filter(expires_at__lte=ClockTimestamp()) if value == "expired" else queryset


class _HeldList(ConsoleList):
    """Sessions that somebody runs, or ran until their time was over. The others have a row, and nothing to tell."""

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        return super().get_queryset(request, exclude_parameters).exclude(holder="")


class SeenForm(AskForm):
    """Remembers which execution the operator was shown: another that began since is not meant."""

    epoch = forms.IntegerField(widget=forms.HiddenInput)

    def __init__(self, *args: Any, subjects: Sequence[Any] = (), **kwargs: Any) -> None:
        super().__init__(*args, subjects=subjects, **kwargs)
        self.initial["epoch"] = subjects[0].epoch if subjects else None


def _recover(execution: Execution, asked: Asked) -> str:
    row = operations.recover(session_id=execution.pk, operator=asked.operator, reason=asked.reason)
    name = execution.session.name
    if row is None:
        return f"The execution of {name} is closed: nothing of it was uncertain."
    return f"The execution of {name} is recovered: {row.get_outcome_display()}."


def _interrupt(execution: Execution, asked: Asked) -> str:
    epoch: int = asked.values["epoch"]
    running = operations.interrupt(session_id=execution.pk, epoch=epoch, operator=asked.operator, reason=asked.reason)
    if not running:
        return (
            f"Nobody runs {execution.session.name} any more. What waits in it is run when somebody asks for it again."
        )
    return f"Whoever runs {execution.session.name} hears of it at the next renewal."


def _end_turn(execution: Execution, asked: Asked) -> str:
    epoch: int = asked.values["epoch"]
    operations.end_turn(session_id=execution.pk, epoch=epoch, operator=asked.operator, reason=asked.reason)
    return f"The turn of {execution.session.name} is ended as failed."


def _ends(request: HttpRequest, rows: Sequence[Execution]) -> SafeString:
    counts = {
        "messages of the turn, which stay": sum(row.session.last_seq - row.session.terminal_seq for row in rows),
        "executions that are taken from their holder": sum(bool(row.holder) for row in rows),
        "inputs that go on waiting": Input.objects.pending().filter(session__in=[row.pk for row in rows]).count(),
    }
    return goes.with_it("What it touches:", counts)


def _is_expired(row: Any) -> bool:
    return standing.of(row, row.now) == "expired"


def _has_turn(row: Any) -> bool:
    return bool(row.holder) or row.session.terminal_seq < row.session.last_seq


ACTS: tuple[Act, ...] = (
    Act(
        name="recover",
        label="Recover now",
        explains="Looks at what an expired execution left, without waiting for the next scan: what is uncertain is "
        "marked so in the conversation, and an input asks to go on from there. Nothing is run again by itself. A live "
        "execution is left alone.",
        run=_recover,
        final="What was marked as uncertain stays marked so in the conversation.",
        bulk=True,
        offered=_is_expired,
    ),
    Act(
        name="interrupt",
        label="Interrupt",
        explains="Asks whoever runs the session to stop. They hear of it at their next renewal, settle what is under "
        "way, and give the session back. What waits stays, and is run when somebody asks for it again.",
        run=_interrupt,
        final="Who has heard of it stops. What waits is run when somebody asks for it again.",
        form=SeenForm,
        offered=lambda row: bool(row.holder) and row.interrupted_at is None,
    ),
    Act(
        name="end-turn",
        label="End the turn",
        explains="Ends the turn as failed, and takes the session from whoever runs it: their next write is refused. "
        "What they had under way is marked as uncertain.",
        run=_end_turn,
        preview=_ends,
        form=SeenForm,
        final="The turn cannot be taken up again. What was dispatched already may still happen.",
        danger=True,
        offered=_has_turn,
    ),
)


def known() -> QuerySet[Execution]:
    """Executions with their sessions, and the database's clock beside each as `now`."""
    return Execution.objects.select_related(*RELATED).annotate(now=ClockTimestamp())


@admin.register(Execution)
class ExecutionAdmin(ActingAdmin[Execution], ReadOnlyAdmin[Execution]):
    acts: ClassVar[Sequence[Act]] = ACTS
    empty_line = "Nobody runs a session now. A runner takes one with POST /api/v1/sessions/ID/execution."
    list_display = ("whose", "stated", "held_by", "in_phase", "age", "row_acts")
    list_select_related = RELATED
    search_fields = ("session__name", "holder")
    ordering = ("expires_at",)
    list_filter = (
        StateFilter,
        ("phase", admin.ChoicesFieldListFilter),
        filters.word("space", "space__slug"),
        filters.word("agent", "session__agent__handle"),
    )

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return super().changelist_view(request, {"title": "Live executions", **(extra_context or {})})

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return _HeldList

    def get_queryset(self, request: HttpRequest) -> QuerySet[Execution]:
        return super().get_queryset(request).select_related(*RELATED).annotate(now=ClockTimestamp())

    def named(self, row: Execution) -> str:
        return row.session.name

    @admin.display(description="Session", ordering="session__name")
    def whose(self, row: Execution) -> SafeString:
        return waiting.whose(row.session, row.space.slug)

    @admin.display(description="State and time left", ordering="expires_at")
    def stated(self, row: Any) -> SafeString:
        line = (time_left(row), interruption(row))
        return labels.with_line(standing.of(row, row.now), ", ".join(part for part in line if part))

    @admin.display(description="Holder", ordering="holder")
    def held_by(self, row: Execution) -> SafeString:
        return format_html(
            '<span class="am-key">{}</span><span class="am-first">epoch {}</span>', row.holder, row.epoch
        )

    @admin.display(description="Phase", ordering="phase")
    def in_phase(self, row: Execution) -> SafeString:
        return waiting.phase(row.phase)

    @admin.display(description="Since", ordering="acquired_at")
    def age(self, row: Execution) -> SafeString:
        return figures.when(row.acquired_at)

    @admin.display(description="Actions")
    def row_acts(self, row: Execution) -> SafeString | str:
        return self.row_links(row, *(act.name for act in ACTS))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """One session's execution: its state, what waits, what was recovered, the newest events."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        row: Any = self.get_queryset(request).filter(pk=int(object_id)).first() if _is_key(object_id) else None
        if row is None:
            raise Http404
        recoveries = list(Recovery.objects.filter(session=row.session_id).order_by("-pk")[:RECOVERIES_SHOWN])
        context = {
            **self.admin_site.each_context(request),
            "title": row.session.name,
            "opts": self.opts,
            "original": links.Named(row, row.session.name),
            "execution": row,
            "state": _state(row, recoveries),
            "interruption": interruption(row),
            "left": time_left(row),
            "acts": self.act_links(row, request),
            **waiting.shown(request, row.session, row, row.now),
            "recoveries": recoveries,
            "events": SessionEvent.objects.filter(session=row.session_id).order_by("-seq")[:EVENTS_SHOWN],
            "sees_recoveries": request.user.has_perm("sessions_exec.view_recovery"),
            "sees_events": request.user.has_perm("sessions_exec.view_sessionevent"),
        }
        return TemplateResponse(request, "console/execution.html", context)


def interruption(row: Execution) -> str:
    """Whether it was asked to stop, for the line under its state."""
    return "asked to stop" if row.holder and row.interrupted_at is not None else ""


def time_left(row: Any) -> str:
    """How much longer it holds, or for how long it has been over: by the database's clock."""
    if row.expires_at is None:
        return figures.NONE
    span = row.expires_at - row.now
    return f"{figures.duration(span)} left" if row.expires_at > row.now else f"over for {figures.duration(-span)}"


def _state(row: Any, recoveries: Sequence[Recovery]) -> str:
    """`recovered` where nobody has run the session since."""
    state = standing.of(row, row.now)
    recovered = state == "idle" and bool(recoveries) and recoveries[0].epoch == row.epoch
    return "recovered" if recovered else state


def _is_key(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
