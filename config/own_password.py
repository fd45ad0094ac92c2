"""The page on which somebody gives himself another password: it is an act like every other, and on record."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.views import PasswordChangeView
from django.db import transaction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse
from unfold.forms import AdminOwnPasswordChangeForm

from config import accounts


class OwnPasswordForm(AdminOwnPasswordChangeForm):  # type: ignore[misc]
    """The framework's, which asks for the old one, and no reason: it is its holder's own."""

    @transaction.atomic
    def save(self, commit: bool = True) -> Any:
        user = super().save(commit)
        accounts.own_password_set(user)
        return user


def page(request: HttpRequest) -> HttpResponseBase:
    """Whoever is signed in elsewhere with the old one is signed out there."""
    view = PasswordChangeView.as_view(
        form_class=OwnPasswordForm,
        success_url=reverse("admin:password_change_done"),
        template_name=admin.site.password_change_template or "registration/password_change_form.html",
        extra_context=admin.site.each_context(request),
    )
    return view(request)
