"""One box that finds everything an operator may mean: a page of its own, and unfold's command palette."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import urlencode
from unfold.dataclasses import SearchResult

from agentmemory.console import links, permissions
from agentmemory.errors import Invalid
from agentmemory.services import lookup
from agentmemory.services.lookup import Found

LEFT_OUT = (
    "You see shared ones only: private memories, titles of sessions and what was said are not looked through for you."
)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Rows that are found together. `needs` is the permission to see them, `listed` the list that looks further."""

    title: str
    icon: str
    needs: str
    find: lookup.Finder
    listed: str
    page: Callable[[Any], str] = lambda row: links.change(row._meta.app_label, row._meta.model_name, row.pk)


@dataclass(frozen=True, kw_only=True)
class Group:
    """What was found of a kind; `rows` is None where the database was not done in time."""

    kind: Kind
    rows: Sequence[tuple[Found, str]] | None
    more: str


# Apps further left add what they keep: they know this app, and it knows none of them.
kinds: list[Kind] = [
    Kind(
        title="Memories",
        icon="neurology",
        needs="agentmemory.view_memory",
        find=lookup.memories,
        listed="agentmemory_memory",
    ),
    Kind(
        title="Agents and spaces",
        icon="smart_toy",
        needs="agentmemory.view_agent",
        find=lookup.spaces_and_agents,
        listed="agentmemory_agent",
    ),
    Kind(
        title="Sessions",
        icon="forum",
        needs="agentmemory.view_session",
        find=lookup.sessions,
        listed="agentmemory_session",
    ),
    Kind(
        title="Messages",
        icon="chat",
        needs="agentmemory.view_message",
        find=lookup.messages,
        listed="agentmemory_message",
        page=lambda row: links.message(row.session_id, row.seq),
    ),
]


def page(request: HttpRequest) -> HttpResponse:
    """What the words of `?s=` may mean, by kind; for the palette, which asks for it `extended`, as its list."""
    try:
        words = lookup.text(request.GET.get("s", ""))
    except Invalid:
        words = ""
    groups = [_group(request, kind, words) for kind in kinds if request.user.has_perm(kind.needs)] if words else []
    _note(request, groups)
    found = [group for group in groups if group.rows is None or group.rows]
    if "extended" in request.GET:
        return _for_palette(request, words, found)
    context = {
        **admin.site.each_context(request),
        "title": "Search",
        "words": words,
        "groups": found,
        "left_out": "" if permissions.reads_private(request) else LEFT_OUT,
        "purge_url": _everything(words) if _may_purge(request) else "",
    }
    return TemplateResponse(request, "console/search.html", context)


def _group(request: HttpRequest, kind: Kind, words: str) -> Group:
    rows = lookup.within_patience(kind.find, words, readable=permissions.reads_private(request))
    more = reverse(f"admin:{kind.listed}_changelist") + f"?{urlencode({'q': words})}"
    return Group(kind=kind, rows=None if rows is None else [(found, kind.page(found.row)) for found in rows], more=more)


def _note(request: HttpRequest, groups: Sequence[Group]) -> None:
    """On record, once for each kind of which private content is shown."""
    shown = [found for group in groups for found, _ in group.rows or () if found.private]
    for model in sorted({type(found.row) for found in shown}, key=lambda model: model.__name__):
        permissions.note_found(request, model)


def _for_palette(request: HttpRequest, words: str, groups: Sequence[Group]) -> HttpResponse:
    found = [
        SearchResult(title=each.title, description=_described(group, each), link=url, icon=group.kind.icon)
        for group in groups
        for each, url in group.rows or ()
    ]
    if words:
        link = f"{reverse('admin:search')}?{urlencode({'s': words})}"
        told = words if permissions.reads_private(request) else f"{words} · you see shared ones only"
        found.append(SearchResult(title="All that was found", description=told, link=link, icon="search"))
    pages = Paginator(found, len(found) or 1)
    context = {"page_obj": pages, "results": pages.page(1), "page_counter": 0, "execution_time": 0}
    answer = TemplateResponse(request, "unfold/helpers/command_results.html", context)
    answer["HX-Trigger"] = "search"
    return answer


def _described(group: Group, found: Found) -> str:
    return " · ".join(filter(None, (group.kind.title, found.line, found.why)))


def _may_purge(request: HttpRequest) -> bool:
    return bool(request.user.has_perm(permissions.PURGE)) and permissions.reads_private(request)


def _everything(words: str) -> str:
    return f"{reverse('admin:agentmemory_certificate_find')}?{urlencode({'q': words})}"
