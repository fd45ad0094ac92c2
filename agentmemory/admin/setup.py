"""Rows that operators set up by form: each save asks why and is put on record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.db.models import Model
from django.http import HttpRequest
from unfold.widgets import UnfoldAdminTextInputWidget

from agentmemory.admin.acts import ActingAdmin
from agentmemory.admin.base import Row
from agentmemory.authorship import Author
from agentmemory.models import Space
from agentmemory.services import activity

if TYPE_CHECKING:
    RowForm = forms.ModelForm[Any]
else:
    RowForm = forms.ModelForm


class ReasonForm(RowForm):
    """A row, and the line that says why it is as it is."""

    reason = forms.CharField(
        max_length=500, label="Why", help_text="One line, kept with what is done.", widget=UnfoldAdminTextInputWidget
    )


class SetUpAdmin(ActingAdmin[Row]):
    """A form of the row's own fields, and the reason. The framework saves and records in one transaction."""

    form = ReasonForm

    def get_fields(self, request: HttpRequest, obj: Row | None = None) -> list[Any]:
        fields = [name for name in super().get_fields(request, obj) if name != "reason"]
        may = self.has_change_permission(request, obj) if obj else self.has_add_permission(request)
        return [*fields, "reason"] if may else fields

    def save_model(self, request: HttpRequest, obj: Row, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        record_save(request, obj, form, change)


def record_save(request: HttpRequest, obj: Model, form: Any, change: bool) -> None:
    """Put on record that a form of a row was saved, by whom and why. Where nothing was different, nothing was done."""
    changed = [name for name in form.changed_data if name != "reason"]
    if change and not changed:
        return
    activity.record(
        "change" if change else "create",
        who=str(Author(kind="operator", name=request.user.get_username())),
        target=obj,
        reason=form.cleaned_data["reason"],
        space=obj if isinstance(obj, Space) else getattr(obj, "space", None),
        detail={"fields": changed} if change else {},
    )
