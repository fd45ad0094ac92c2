"""Sign-ins: where somebody tries again and again, and who is held back for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from agentmemory.admin.acts import Act, ActingAdmin, Asked
from agentmemory.admin.base import ReadOnlyAdmin
from agentmemory.console import figures, labels
from agentmemory.models import LoginTries
from agentmemory.services import logins


def _clear(row: LoginTries, asked: Asked) -> str:
    logins.clear(row, who=str(asked.author), reason=asked.reason)
    return f"The tries of {row} are forgotten."


@admin.register(LoginTries)
class LoginTriesAdmin(ActingAdmin[LoginTries], ReadOnlyAdmin[LoginTries]):
    acts: ClassVar[Sequence[Act]] = (
        Act(
            name="clear",
            label="Clear",
            explains="Forgets the tries, so that the next one may be made at once.",
            run=_clear,
            final="The tries are not counted again: who guesses may go on guessing.",
            bulk=True,
            gone=True,
        ),
    )
    counted = ("sign-in", "sign-ins")
    empty_line = "Nobody has failed to sign in lately."
    list_display = ("whose", "kind", "tried", "state", "first", "row_acts")
    list_display_links = None
    search_fields = ("subject",)
    ordering = ("-id",)
    list_filter = (("kind", admin.ChoicesFieldListFilter),)
    fields = ("whose", "kind", "tried", "state", "first")
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[LoginTries]:
        return logins.counting()

    @admin.display(description="Of")
    def whose(self, row: LoginTries) -> str:
        return row.subject

    @admin.display(description="Tries")
    def tried(self, row: LoginTries) -> str:
        return f"{figures.number(row.tries)} of {figures.number(logins.allowed(LoginTries.Kind(row.kind)))}"

    @admin.display(description="State")
    def state(self, row: LoginTries) -> SafeString:
        if row.tries >= logins.allowed(LoginTries.Kind(row.kind)):
            return labels.label("paused", "held back")
        return labels.label("active", "may try")

    @admin.display(description="First try")
    def first(self, row: LoginTries) -> SafeString:
        return figures.when(row.since)

    @admin.display(description="Actions")
    def row_acts(self, row: LoginTries) -> SafeString | str:
        return self.row_links(row, "clear")
