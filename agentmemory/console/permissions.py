"""Who may read what is private: a right of its own, beside those of the framework."""

from __future__ import annotations

from django.db.models import Model
from django.http import HttpRequest

from agentmemory.authorship import Author
from agentmemory.models import Space
from agentmemory.services import records

# Made with the groups, since it belongs to no one model's pages.
READ_PRIVATE = "agentmemory.read_private_content"
# Whoever may make a certificate may do what one is made of.
PURGE = "agentmemory.add_certificate"
SHARED_ONLY = "You see shared ones only: keys, tags and words of private memories are not looked through for you."
HIDDEN = "Hidden: it needs the permission “Read private content”."


def note_look(request: HttpRequest, row: Model, space: Space | None) -> None:
    """Put on record that this operator reads the private content of a row."""
    records.looked(who=_who(request), target=row, space=space)


def note_list(request: HttpRequest, model: type[Model]) -> None:
    """Put on record that this operator reads a list that shows private content."""
    records.looked_through(who=_who(request), model=model)


def note_found(request: HttpRequest, model: type[Model]) -> None:
    """Put on record that this operator was shown private content by the search over everything."""
    records.looked_through(who=_who(request), model=model, what="what a search found")


def _who(request: HttpRequest) -> str:
    return str(Author(kind="operator", name=request.user.get_username()))


def reads_private(request: HttpRequest) -> bool:
    """Whether this operator may read transcripts, answers and the content of private memories."""
    return bool(request.user.has_perm(READ_PRIVATE))
