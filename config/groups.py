"""Two groups to begin with: those who operate, and those who only look. Copy them to have others."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.contrib.auth.models import Group, Permission
from django.contrib.contenttypes.models import ContentType

from agentmemory.console import permissions
from agentmemory.models import Memory

OURS = ("agentmemory", "sessions_exec", "distillation")
OPERATORS = "Operators"
VIEWERS = "Viewers"


def ensure(**_: Any) -> None:
    """Make the right to read private content, and the two groups. Safe to repeat; nothing is taken from a group."""
    _app, codename = permissions.READ_PRIVATE.split(".")
    private, _made = Permission.objects.get_or_create(
        content_type=ContentType.objects.get_for_model(Memory),
        codename=codename,
        defaults={"name": "Read private content: transcripts, answers, private memories"},
    )
    models = [model for label in OURS for model in apps.get_app_config(label).get_models()]
    types = ContentType.objects.get_for_models(*models).values()
    looking = list(Permission.objects.filter(content_type__in=types, codename__startswith="view_"))
    changing = list(Permission.objects.filter(content_type__in=types, codename__regex=r"^(add|change)_"))
    for name, granted in ((VIEWERS, looking), (OPERATORS, [*looking, *changing, private])):
        group, _made = Group.objects.get_or_create(name=name)
        group.permissions.add(*granted)
