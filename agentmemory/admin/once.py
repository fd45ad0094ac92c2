"""An answer to a page that asks counts once: sent again, by a double click or out of the browser's history, it does
nothing.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from django.db import transaction
from django.http import HttpRequest

FIELD = "once"
AGAIN = (
    "That was sent before, and is not done a second time. Where the first time ended in an error, look whether it was "
    "done, and ask anew."
)
_KEY, _KEPT = "answered", 50


def mark() -> str:
    """What a form carries to be told from every other one."""
    return str(uuid4())


def known(request: HttpRequest) -> bool:
    """Whether this answer came before. What it says need not be valid any more: it is what made it so."""
    return request.POST.get(FIELD, "")[:50] in request.session.get(_KEY, [])


def claim(request: HttpRequest) -> bool:
    """Whether this answer comes for the first time. Noted before anything is done, so that of two at once one is done.

    An answer without a mark is none of a page's, and is taken as it comes.
    """
    mark = request.POST.get(FIELD, "")[:50]
    if not mark:
        return True
    with transaction.atomic():
        before = _before(request)
        if mark in before:
            return False
        request.session[_KEY] = [*before, mark][-_KEPT:]
        request.session.save()
        # Saved again at the end it would not be found, where the act itself has ended it.
        request.session.modified = False
    return True


def _before(request: HttpRequest) -> list[str]:
    """The marks that this session has seen: of its row, which is locked, where sessions are kept in the database."""
    model: Any = getattr(request.session, "model", None)
    row = None
    if model is not None:
        row = model.objects.select_for_update().filter(pk=request.session.session_key).first()
    before: list[str] = (row.get_decoded() if row is not None else request.session).get(_KEY, [])
    return before
