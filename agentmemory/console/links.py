"""Where the console's pages are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import Model
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString


class Named:
    """A row under another name, for the head of its page."""

    def __init__(self, row: Model, name: str) -> None:
        self._meta = row._meta
        self.pk = row.pk
        self._name = name

    def __str__(self) -> str:
        # In quotation marks: the head of a page begins with a capital, and a name must not be given one.
        return f"\u201c{self._name}\u201d"


def change(app: str, model: str, pk: Any) -> str:
    """The page of one row."""
    return reverse(f"admin:{app}_{model}_change", args=[pk])


def listing(app: str, model: str, query: str = "") -> str:
    """The list of a model, filtered by a query string."""
    return reverse(f"admin:{app}_{model}_changelist") + (f"?{query}" if query else "")


def act(app: str, model: str, name: str, pks: Iterable[Any], following: str = "", **values: Any) -> str:
    """Where an act on rows asks. `following` is the page that comes after it, `values` what its form is filled with."""
    query = {"ids": ",".join(str(pk) for pk in pks), **({"next": following} if following else {}), **values}
    return reverse(f"admin:{app}_{model}_act", args=[name]) + f"?{urlencode(query)}"


def memory(pk: Any) -> str:
    return change("agentmemory", "memory", pk)


def session(pk: Any) -> str:
    return change("agentmemory", "session", pk)


def message(session_id: Any, seq: int) -> str:
    """One message in its conversation: the piece it is in, and the place."""
    return f"{session(session_id)}?at={seq}#m{seq}"


def a_pass(pk: Any) -> str:
    """The page of a distillation pass."""
    return change("distillation", "distillationpass", pk)


def a_cursor(pk: Any) -> str:
    """The page that tells how far a session is distilled."""
    return change("distillation", "cursor", pk)


def anchor(url: str, text: object) -> SafeString:
    return format_html('<a class="am-link" href="{}">{}</a>', url, text)
