"""Accounts in the console's clothes, and the queue's own pages taken away: its rows are not for editing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.apps import apps
from django.contrib import admin
from django.contrib.auth import admin as auth_admin
from django.contrib.auth.models import Group, User
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin as UnfoldAdmin
else:
    from agentmemory.admin.base import UnfoldAdmin

admin.site.unregister(User)
admin.site.unregister(Group)
for _model in apps.get_app_config("django_q").get_models():
    # A schedule that is edited into nonsense would stop every other one.
    if admin.site.is_registered(_model):
        admin.site.unregister(_model)


@admin.register(User)
class UserAdmin(auth_admin.UserAdmin, UnfoldAdmin):  # type: ignore[type-arg]
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ("username", "email", "is_active", "is_staff", "is_superuser", "last_login")
    show_full_result_count = False


@admin.register(Group)
class GroupAdmin(auth_admin.GroupAdmin, UnfoldAdmin):  # type: ignore[type-arg]
    show_full_result_count = False
