"""Who may read what is private: a right of its own, beside those of the framework."""

from __future__ import annotations

from django.http import HttpRequest

# Made with the groups, since it belongs to no one model's pages.
READ_PRIVATE = "agentmemory.read_private_content"
HIDDEN = "Hidden: it needs the permission “Read private content”."


def reads_private(request: HttpRequest) -> bool:
    """Whether this operator may read transcripts, answers and the content of private memories."""
    return bool(request.user.has_perm(READ_PRIVATE))
