"""The three roles of operators, as groups: who looks, who curates, who operates. Copy one to have another."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.contrib.auth.models import Group, Permission
from django.contrib.contenttypes.models import ContentType

from agentmemory.console import permissions
from agentmemory.models import Memory

OURS = ("agentmemory", "sessions_exec", "distillation")
VIEWERS = "Viewers"
CURATORS = "Curators"
OPERATORS = "Operators"
ROLES = (VIEWERS, CURATORS, OPERATORS)

# What each may do, in a line. Nobody of them manages accounts: that is for superusers.
MEANS = {
    VIEWERS: "look at every list and page, without what is private.",
    CURATORS: "look, read what is private, and right what is remembered. Nothing for good.",
    OPERATORS: "do all that the console offers, except managing accounts.",
}

# What a curator may do beside looking: right what is remembered, and read what it comes from. Nothing for good.
CURATING = frozenset({"change_memory", "change_consolidation", "read_private_content"})


def ensure(**_: Any) -> None:
    """Make the right to read private content and the roles, each with exactly its rights. Safe to repeat.

    It runs at the end of every `migrate`, when the rights of new tables are there: a role never lacks those.
    """
    _app, codename = permissions.READ_PRIVATE.split(".")
    Permission.objects.get_or_create(
        content_type=ContentType.objects.get_for_model(Memory),
        codename=codename,
        defaults={"name": "Read private content: transcripts, answers, private memories"},
    )
    models = [model for label in OURS for model in apps.get_app_config(label).get_models()]
    types = ContentType.objects.get_for_models(*models).values()
    known = Permission.objects.filter(content_type__in=types)
    for role in ROLES:
        group, _made = Group.objects.get_or_create(name=role)
        group.permissions.set([right for right in known if _has(role, right.codename)])


def _has(role: str, codename: str) -> bool:
    looks = codename.startswith("view_")
    if role == CURATORS:
        return looks or codename in CURATING
    # Rights to delete rows are nobody's: what can go goes through an act, with a reason.
    return looks or (role == OPERATORS and not codename.startswith("delete_"))
