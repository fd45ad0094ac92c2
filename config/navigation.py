"""The sidebar and the tabs: what the signed-in operator may see, with the counts that matter."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from distillation.services import overview
from sessions_exec.services import standing


@dataclass(frozen=True, kw_only=True)
class Item:
    """One link. `needs` is the permission that shows it."""

    title: str
    icon: str
    route: str
    needs: str
    page: str = "_changelist"
    badge: str = ""
    tone: str = "info"


GROUPS: tuple[tuple[str, tuple[Item, ...]], ...] = (
    (
        "Memory",
        (
            Item(title="Memories", icon="neurology", route="agentmemory_memory", needs="agentmemory.view_memory"),
            Item(
                title="Compare",
                icon="compare_arrows",
                route="agentmemory_memory_compare",
                page="",
                needs="agentmemory.view_memory",
            ),
            Item(
                title="Merges and withdrawals",
                icon="merge",
                route="agentmemory_consolidation",
                needs="agentmemory.view_consolidation",
            ),
        ),
    ),
    (
        "Distillation",
        (
            Item(
                title="Waiting",
                icon="hourglass_top",
                route="distillation_cursor",
                needs="distillation.view_cursor",
                badge="waiting",
            ),
            Item(
                title="Passes",
                icon="filter_alt",
                route="distillation_distillationpass",
                needs="distillation.view_distillationpass",
            ),
            Item(
                title="Quarantine",
                icon="block",
                route="distillation_quarantine",
                needs="distillation.view_quarantine",
                badge="quarantined",
                tone="danger",
            ),
            Item(
                title="Cost",
                icon="payments",
                route="distillation_cost",
                page="",
                needs="distillation.view_distillationpass",
            ),
        ),
    ),
    (
        "Sessions",
        (
            Item(title="Sessions", icon="forum", route="agentmemory_session", needs="agentmemory.view_session"),
            Item(
                title="Live executions",
                icon="play_circle",
                route="sessions_exec_execution",
                needs="sessions_exec.view_execution",
                badge="expired",
                tone="warning",
            ),
            Item(title="Inputs that wait", icon="inbox", route="sessions_exec_input", needs="sessions_exec.view_input"),
            Item(
                title="Recoveries",
                icon="healing",
                route="sessions_exec_recovery",
                needs="sessions_exec.view_recovery",
            ),
        ),
    ),
    (
        "Set-up",
        (
            Item(title="Spaces", icon="folder_open", route="agentmemory_space", needs="agentmemory.view_space"),
            Item(title="Agents", icon="smart_toy", route="agentmemory_agent", needs="agentmemory.view_agent"),
            Item(title="Tokens", icon="key", route="agentmemory_token", needs="agentmemory.view_token"),
            Item(title="Providers", icon="cloud", route="agentmemory_provider", needs="agentmemory.view_provider"),
            Item(title="Schedules", icon="schedule", route="sessions_exec_tick", needs="sessions_exec.view_tick"),
            Item(title="Webhooks", icon="webhook", route="sessions_exec_webhook", needs="sessions_exec.view_webhook"),
        ),
    ),
    (
        "System",
        (
            Item(
                title="Task cluster",
                icon="memory",
                route="sessions_exec_heartbeat",
                needs="sessions_exec.view_heartbeat",
            ),
            Item(title="Activity", icon="history", route="agentmemory_activity", needs="agentmemory.view_activity"),
            Item(
                title="Purges",
                icon="delete_forever",
                route="agentmemory_certificate",
                needs="agentmemory.view_certificate",
            ),
            Item(
                title="Sign-ins",
                icon="login",
                route="agentmemory_logintries",
                needs="agentmemory.view_logintries",
            ),
            Item(title="Users", icon="person", route="auth_user", needs="auth.view_user"),
            Item(title="Groups", icon="group", route="auth_group", needs="auth.view_group"),
        ),
    ),
)


def sidebar(request: HttpRequest) -> list[dict[str, Any]]:
    """Groups in the console's order; those without a visible item are left out."""
    start = {"title": "Start", "icon": "dashboard", "link": reverse("admin:index")}
    groups = [{"title": "Overview", "items": [start]}]
    counts = _counts(request)
    pages = {item: reverse(f"admin:{item.route}{item.page}") for _, items in GROUPS for item in items}
    here = _here(request, pages.values())
    for title, items in GROUPS:
        seen = [item for item in items if request.user.has_perm(item.needs)]
        visible = [_shown(item, pages[item], here=here, count=counts.get(item.badge, 0)) for item in seen]
        if visible:
            groups.append({"title": title, "items": visible})
    return groups


def _counts(request: HttpRequest) -> dict[str, int]:
    """The badges' numbers, as far as this operator may see what they count."""
    counts = overview.badges() if request.user.has_perm("distillation.view_cursor") else {}
    if request.user.has_perm("sessions_exec.view_execution"):
        counts |= {"expired": standing.expired()}
    return counts


def _shown(item: Item, link: str, *, here: str, count: int) -> dict[str, Any]:
    badge = {"badge": _count(count), "badge_variant": item.tone} if count else {}
    return {"title": item.title, "icon": item.icon, "link": link, "active": link == here, **badge}


def _here(request: HttpRequest, links: Iterable[str]) -> str:
    """The link that leads here: of two that begin alike, the longer."""
    return max((link for link in links if request.path.startswith(link)), key=len, default="")


def _count(count: int) -> str:
    return f"{overview.MOST}+" if count > overview.MOST else str(count)


def tabs(request: HttpRequest) -> list[dict[str, Any]]:
    """Memories, by where they come from and whether they stand."""
    link = reverse("admin:agentmemory_memory_changelist")
    if request.path != link:
        return []
    choices: tuple[tuple[str, dict[str, str]], ...] = (
        ("All", {}),
        ("Curated", {"origin__exact": "curated"}),
        ("Distilled", {"origin__exact": "distilled"}),
        ("Withdrawn", {"standing": "withdrawn"}),
    )
    now = {name: request.GET[name] for name in ("origin__exact", "standing") if request.GET.get(name)}
    items = [
        {
            "title": title,
            "link": link + ("?" + "&".join(f"{name}={value}" for name, value in query.items()) if query else ""),
            "active": now == query,
        }
        for title, query in choices
    ]
    return [{"models": ["agentmemory.memory"], "items": items}]
