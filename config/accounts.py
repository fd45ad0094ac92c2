"""What one who manages accounts does to one of them. Each act is on record with who did it and why."""

from __future__ import annotations

from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.utils import timezone

from agentmemory.authorship import Author
from agentmemory.services import activity, records


def set_password(user: User, password: str, *, who: str, reason: str) -> None:
    """Give an account another password. Whoever is signed in with the old one is not any more."""

    def run() -> None:
        user.set_password(password)
        user.save(update_fields=["password"])

    records.acted("set password", run, who=who, target=user, reason=reason, space=None)


def own_password_set(user: User) -> None:
    """Put on record that somebody has given himself another password."""
    who = str(Author(kind="operator", name=user.get_username()))
    activity.record("set own password", who=who, target=user, reason="by its holder")


def set_active(user: User, *, active: bool, who: str, reason: str) -> None:
    """Let an account sign in, or keep it out: it is signed out at its next request."""

    def run() -> None:
        user.is_active = active
        user.save(update_fields=["is_active"])

    act = "activate" if active else "deactivate"
    records.acted(act, run, who=who, target=user, reason=reason, space=None)


def sign_out(user: User, *, who: str, reason: str) -> int:
    """End all sessions of an account. Returns how many there were."""
    mine = sessions_of(user)

    def run() -> None:
        Session.objects.filter(pk__in=mine).delete()

    records.acted("sign out", run, who=who, target=user, reason=reason, space=None)
    return len(mine)


def sessions_of(user: User) -> list[str]:
    """The keys of the sessions that an account is signed in with."""
    return [
        session.pk
        for session in Session.objects.filter(expire_date__gt=timezone.now()).iterator()
        if session.get_decoded().get("_auth_user_id") == str(user.pk)
    ]


def delete_group(group: Group, *, who: str, reason: str) -> None:
    """Take a group away, and its rights from whoever is in it."""
    # What is on record names the row, which has no number once it is gone.
    gone = Group(pk=group.pk, name=group.name)

    def run() -> None:
        group.delete()

    records.acted("delete", run, who=who, target=gone, reason=reason, space=None)
