"""Quarantine: messages that failed alone, again and again, and were left out so that the rest goes on (D20)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet, Value
from django.http import HttpRequest
from django.utils.safestring import SafeString

from agentmemory.admin import filters
from agentmemory.admin.acts import Act, ActingAdmin, Asked
from agentmemory.admin.base import ReadOnlyAdmin
from agentmemory.console import figures, goes, labels, links, permissions
from distillation.models import Quarantine
from distillation.services import operations


def _held(row: Quarantine) -> bool:
    return row.state == Quarantine.State.HELD


def _release(row: Quarantine, asked: Asked) -> str:
    operations.release_quarantine(quarantine_id=row.pk, operator=asked.operator, reason=asked.reason)
    return f"Message {row.seq} is tried again."


def _dismiss(row: Quarantine, asked: Asked) -> str:
    operations.dismiss_quarantine(quarantine_id=row.pk, operator=asked.operator, reason=asked.reason)
    return f"Message {row.seq} is left out for good."


def _hold(row: Quarantine, asked: Asked) -> str:
    operations.hold_quarantine(quarantine_id=row.pk, operator=asked.operator, reason=asked.reason)
    return f"Message {row.seq} waits for a decision again."


def _left_out(request: HttpRequest, rows: Sequence[Quarantine]) -> SafeString:
    counts = {"messages": len(rows), "failures of theirs": sum(row.failures for row in rows)}
    return goes.with_it("What no memory is made of:", counts)


@admin.register(Quarantine)
class QuarantineAdmin(ActingAdmin[Quarantine], ReadOnlyAdmin[Quarantine]):
    acts: ClassVar[Sequence[Act]] = (
        Act(
            name="release",
            label="Try again",
            explains="Has the message tried again at once, alone. When it fails again it comes back here.",
            run=_release,
            final="The attempt is paid for, whatever comes of it.",
            bulk=True,
            offered=_held,
        ),
        Act(
            name="dismiss",
            label="Leave out for good",
            explains="Leaves the message out of distillation. It stays in its conversation.",
            run=_dismiss,
            undo="hold",
            preview=_left_out,
            bulk=True,
            danger=True,
            offered=_held,
        ),
        Act(
            name="hold",
            label="Decide anew",
            explains="Takes the message that was left out for good back to those that wait for a decision.",
            run=_hold,
            undo="dismiss",
            bulk=True,
            offered=lambda row: row.state == Quarantine.State.DISMISSED,
        ),
    )
    counted = ("message", "messages")
    empty_line = "No message is in quarantine."
    list_display = ("message", "stated", "whose", "failures", "decided", "since", "row_acts")
    list_select_related = ("cursor__session", "agent")
    search_fields = ("uid", "cursor__session__name")
    list_filter = (("state", admin.ChoicesFieldListFilter), filters.word("agent", "agent__handle"))
    fields = ("message", "stated", "whose", "failures", "said", "decided", "since", "conversation")
    readonly_fields = fields

    change_form_outer_before_template = "console/acts_before.html"

    @admin.display(description="Actions")
    def row_acts(self, row: Quarantine) -> SafeString | str:
        return self.row_links(row, "release", "dismiss")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Quarantine]:
        rows = super().get_queryset(request).select_related(*self.list_select_related)
        return rows.annotate(may_be_read=Value(permissions.reads_private(request)))

    def named(self, row: Quarantine) -> str:
        return self.message(row)

    @admin.display(description="Message", ordering="seq")
    def message(self, row: Quarantine) -> str:
        return f"{row.cursor.session.name} · message {row.seq}"

    @admin.display(description="State", ordering="state")
    def stated(self, row: Quarantine) -> SafeString:
        line = f"message {row.seq} failed alone {row.failures} times" if row.state == Quarantine.State.HELD else ""
        state = "quarantined" if row.state == Quarantine.State.HELD else row.state
        return labels.with_line(state, line)

    @admin.display(description="Agent", ordering="agent__handle")
    def whose(self, row: Quarantine) -> str:
        return row.agent.handle

    @admin.display(description="Error")
    def said(self, row: Any) -> str:
        """What the last failure said. It may quote the message, as a decision's reason may."""
        return row.error if row.may_be_read else permissions.HIDDEN

    @admin.display(description="Decided")
    def decided(self, row: Any) -> str:
        if not row.decided_by:
            return figures.NONE
        return f"{row.decided_by}: {row.decided_reason}" if row.may_be_read else row.decided_by

    @admin.display(description="Since", ordering="created_at")
    def since(self, row: Quarantine) -> SafeString:
        return figures.when(row.created_at)

    @admin.display(description="In its conversation")
    def conversation(self, row: Quarantine) -> SafeString:
        return links.anchor(links.message(row.cursor.session_id, row.seq), f"message {row.seq}")

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.has_perm("distillation.view_quarantine"))
