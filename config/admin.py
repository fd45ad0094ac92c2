"""Accounts in the console's clothes, and the queue's own pages taken away: its rows are not for editing.

Who manages accounts can give himself every right, so that only superusers do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.apps import apps
from django.contrib import admin
from django.contrib.auth import admin as auth_admin
from django.contrib.auth import password_validation
from django.contrib.auth.models import Group, User
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.safestring import SafeString
from unfold.forms import UserChangeForm, UserCreationForm
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from agentmemory.admin import setup
from agentmemory.admin.acts import Act, ActingAdmin, Asked, AskForm
from agentmemory.admin.setup import ReasonForm
from agentmemory.console import figures, goes, labels
from agentmemory.errors import Invalid
from config import accounts, groups, schedules  # noqa: F401  (schedules registers its page)

admin.site.unregister(User)
admin.site.unregister(Group)
for _model in apps.get_app_config("django_q").get_models():
    # A schedule that is edited into nonsense would stop every other one.
    if admin.site.is_registered(_model):
        admin.site.unregister(_model)

_OURS = ("agentmemory", "distillation", "sessions_exec")
_HELP = {
    "password": "It is kept as a hash: nobody can read it.",
    "is_staff": "Whether it gets into this console. Without it the right password is refused like a wrong one.",
    "groups": "What it may do comes from these. Without any it gets in, and sees nothing.",
}
_WHY: tuple[None, dict[str, Any]] = (None, {"fields": ("reason",)})


if TYPE_CHECKING:
    Choices = forms.ModelMultipleChoiceField[Group]
else:
    Choices = forms.ModelMultipleChoiceField


class GroupsField(Choices):
    """Groups, each with what it lets one do."""

    def label_from_instance(self, obj: Group) -> str:
        means = groups.MEANS.get(obj.name)
        return f"{obj.name}: {means}" if means else obj.name


class UserForm(ReasonForm, UserChangeForm):  # type: ignore[misc]
    """An account, and the line that says why it is as it is. Its password is set by an act."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _explain(self.fields)


class NewUserForm(ReasonForm, UserCreationForm):  # type: ignore[misc]
    """A new account, and the line that says why there is one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _explain(self.fields)


def _explain(fields: dict[str, forms.Field]) -> None:
    """What the framework says of some fields, in the words of this console."""
    for name in _HELP.keys() & fields.keys():
        fields[name].help_text = _HELP[name]


class PasswordForm(AskForm):
    password = forms.CharField(
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text="Whoever is signed in with the old one is signed out.",
    )

    def clean_password(self) -> str:
        password: str = self.cleaned_data["password"]
        password_validation.validate_password(password, self.subjects[0])
        return password


def _set_password(user: User, asked: Asked) -> str:
    accounts.set_password(user, asked.values["password"], who=str(asked.author), reason=asked.reason)
    return f"{user} has another password, and is signed out everywhere."


def _deactivate(user: User, asked: Asked) -> str:
    if user.username == asked.operator:
        raise Invalid("That is your own account: somebody else has to deactivate it.")
    accounts.set_active(user, active=False, who=str(asked.author), reason=asked.reason)
    return f"{user} cannot sign in any more."


def _activate(user: User, asked: Asked) -> str:
    accounts.set_active(user, active=True, who=str(asked.author), reason=asked.reason)
    return f"{user} can sign in again."


def _sign_out(user: User, asked: Asked) -> str:
    ended = accounts.sign_out(user, who=str(asked.author), reason=asked.reason)
    return f"{user} is signed out: {ended} sessions were ended."


def _delete_group(group: Group, asked: Asked) -> str:
    accounts.delete_group(group, who=str(asked.author), reason=asked.reason)
    return f"The group {group.name} is gone."


def _keeps_out(request: HttpRequest, rows: Sequence[User]) -> SafeString:
    ended = sum(len(accounts.sessions_of(user)) for user in rows)
    return goes.with_it("What is stopped with it:", {"sessions that are signed in": ended})


def _takes_rights(request: HttpRequest, rows: Sequence[Group]) -> SafeString:
    counts = {
        "accounts that are in it": User.objects.filter(groups__in=rows).distinct().count(),
        "rights that it gives": sum(group.permissions.count() for group in rows),
    }
    return goes.with_it("What goes with it:", counts)


class AccountsAdmin(ActingAdmin[Any]):
    """Set up by form with a reason, and by acts. For superusers alone."""

    change_form_outer_before_template = "console/acts_before.html"

    def may_act(self, request: HttpRequest) -> bool:
        return bool(request.user.is_superuser)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.may_act(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.may_act(request)

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Boxes to tick: in a list of so many to choose from, one slip of the mouse takes all that was chosen away."""
        boxes = UnfoldAdminCheckboxSelectMultipleWidget
        if db_field.name == "permissions":
            # The others open no page.
            kwargs["queryset"] = kwargs["queryset"].filter(content_type__app_label__in=_OURS)
        if db_field.name == "groups":
            kwargs["form_class"] = GroupsField
        return super().formfield_for_manytomany(db_field, request, **{**kwargs, "widget": boxes})

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        setup.record_save(request, obj, form, change)


@admin.register(User)
class UserAdmin(auth_admin.UserAdmin, AccountsAdmin):  # type: ignore[type-arg]
    acts: ClassVar[Sequence[Act]] = (
        Act(
            name="set-password",
            label="Set password",
            explains="Gives the account another password, which you tell its holder.",
            run=_set_password,
            final="The password that it has now is not kept anywhere, and cannot be given back.",
            form=PasswordForm,
        ),
        Act(
            name="sign-out",
            label="Sign out everywhere",
            explains="Ends all sessions of the account. It can sign in again.",
            run=_sign_out,
            final="The sessions cannot be brought back: who is signed out signs in again.",
            bulk=True,
        ),
        Act(
            name="deactivate",
            label="Deactivate",
            explains="Keeps the account out from its next request on. What it did stays on record.",
            run=_deactivate,
            preview=_keeps_out,
            undo="activate",
            bulk=True,
            danger=True,
            offered=lambda user: user.is_active,
        ),
        Act(
            name="activate",
            label="Activate",
            explains="Lets the account sign in again.",
            run=_activate,
            undo="deactivate",
            bulk=True,
            offered=lambda user: not user.is_active,
        ),
    )
    form = UserForm
    add_form = NewUserForm
    # Rights come from groups, so that a page tells who may what.
    fieldsets: ClassVar[Any] = (
        (None, {"fields": ("username", "password")}),
        ("Who", {"fields": ("first_name", "last_name", "email")}),
        ("Rights", {"fields": ("is_active", "is_staff", "is_superuser", "groups")}),
        ("When", {"fields": ("seen", "joined")}),
        _WHY,
    )
    filter_horizontal = ()
    readonly_fields = ("seen", "joined")
    add_fieldsets = (
        (
            None,
            {
                "classes": ("wide",),
                "fields": ("username", "password1", "password2", "groups", "reason"),
                "description": "The account gets in here at once, as staff, and may do what its groups may.",
            },
        ),
    )
    list_display = ("username", "email", "in_groups", "is_active", "is_staff", "is_superuser", "seen")

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        return super().get_queryset(request).prefetch_related("groups")

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        if not change:
            # An account has no other use.
            obj.is_staff = True
        super().save_model(request, obj, form, change)

    @admin.display(description="Groups")
    def in_groups(self, user: User) -> SafeString | str:
        return labels.chips([group.name for group in user.groups.all()], most=3)

    @admin.display(description="Last login", ordering="last_login")
    def seen(self, user: User) -> SafeString:
        return figures.when(user.last_login, never="never")

    @admin.display(description="Date joined", ordering="date_joined")
    def joined(self, user: User) -> SafeString:
        return figures.when(user.date_joined)

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:  # noqa: A002
        """It is one of the acts, which asks why, and whether one may."""
        return HttpResponseRedirect(self.act_url("set-password", [id]))


@admin.register(Group)
class GroupAdmin(auth_admin.GroupAdmin, AccountsAdmin):
    """Groups of an installation's own; the three roles are as the product has them, and stay so."""

    acts: ClassVar[Sequence[Act]] = (
        Act(
            name="delete",
            label="Delete",
            explains="Takes the group away, and its rights from whoever is in it.",
            run=_delete_group,
            preview=_takes_rights,
            final="Its rights have to be put together again by hand.",
            danger=True,
            gone=True,
            offered=lambda group: group.name not in groups.ROLES,
        ),
    )
    form = ReasonForm
    fields = ("name", "permissions", "reason")
    filter_horizontal = ()
    list_display = ("name", "means")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.may_act(request) and (obj is None or obj.name not in groups.ROLES)

    @admin.display(description="What its members may do")
    def means(self, group: Group) -> str:
        return groups.MEANS.get(group.name, "what its page says.")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        may = self.has_change_permission(request, obj)
        return [name for name in self.fields if may or name != "reason"]

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """What the form does not offer stays as it is."""
        others = list(form.instance.permissions.exclude(content_type__app_label__in=_OURS))
        super().save_related(request, form, formsets, change)
        form.instance.permissions.add(*others)
