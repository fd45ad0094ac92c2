"""Spaces and agents: set up by form, stopped and archived by acts. Nothing is lost by either (T4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar
from urllib.parse import urlencode

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agentmemory.admin import filters, purge_acts
from agentmemory.admin.acts import Act, ActingAdmin, Asked
from agentmemory.admin.setup import ReasonForm, SetUpAdmin
from agentmemory.console import figures, goes, labels, links
from agentmemory.models import Agent, Memory, Session, Space, Token
from agentmemory.services import inspection, records, spaces


def _archive(space: Space, asked: Asked) -> str:
    _on_record("archive", lambda: spaces.archive(space_id=space.pk), space, asked)
    return f"{space} is archived: hidden and stopped, with its agents and tokens."


def _restore(space: Space, asked: Asked) -> str:
    _on_record("restore", lambda: spaces.restore(space_id=space.pk), space, asked)
    return f"{space} is back as it was."


def _archive_agent(agent: Agent, asked: Asked) -> str:
    _on_record("archive", lambda: spaces.archive_agent(agent_id=agent.pk), agent, asked)
    return f"{agent} is archived: hidden and stopped, its tokens too."


def _restore_agent(agent: Agent, asked: Asked) -> str:
    _on_record("restore", lambda: spaces.restore_agent(agent_id=agent.pk), agent, asked)
    return f"{agent} is back as it was."


def _pause(agent: Agent, asked: Asked) -> str:
    _on_record("pause", lambda: spaces.pause_agent(agent_id=agent.pk), agent, asked)
    return f"The distillation of {agent} is paused."


def _resume(agent: Agent, asked: Asked) -> str:
    _on_record("resume", lambda: spaces.resume_agent(agent_id=agent.pk), agent, asked)
    return f"The distillation of {agent} goes on."


def _stops(request: HttpRequest, rows: Sequence[Space]) -> SafeString:
    agents = Agent.objects.present().filter(space__in=rows)
    tokens = Token.objects.valid().filter(space__in=rows)
    return goes.with_it("What is stopped with it:", {"agents": agents.count(), "tokens": tokens.count()})


def _stops_agent(request: HttpRequest, rows: Sequence[Agent]) -> SafeString:
    stopped = {
        "tokens": Token.objects.valid().filter(agent__in=rows).count(),
        "memories of its own": Memory.objects.kept().filter(owner__in=rows).count(),
        "sessions": Session.objects.filter(agent__in=rows).count(),
    }
    return goes.with_it("What is stopped or hidden with it, and kept:", stopped)


def _on_record(act: str, run: Callable[[], None], row: Space | Agent, asked: Asked) -> None:
    space = row if isinstance(row, Space) else row.space
    records.acted(act, run, who=str(asked.author), target=row, reason=asked.reason, space=space)


def _stands(row: Space | Agent) -> bool:
    return row.archived_at is None


_SPACE_ACTS = (
    Act(
        name="archive",
        label="Archive",
        explains="Hides and stops the space, its agents and its tokens. Nothing is lost.",
        run=_archive,
        preview=_stops,
        undo="restore",
        danger=True,
        offered=_stands,
    ),
    Act(
        name="restore",
        label="Bring back",
        explains="Makes an archived space work again, as it was.",
        run=_restore,
        undo="archive",
        offered=lambda row: not _stands(row),
    ),
)
_AGENT_ACTS = (
    Act(
        name="pause",
        label="Pause",
        explains="Stops the distillation of its sessions. It goes on reading and writing memories.",
        run=_pause,
        undo="resume",
        bulk=True,
        offered=lambda agent: _stands(agent) and agent.status == Agent.Status.ACTIVE,
    ),
    Act(
        name="resume",
        label="Resume",
        explains="Lets the distillation of its sessions go on where it stopped.",
        run=_resume,
        undo="pause",
        bulk=True,
        offered=lambda agent: _stands(agent) and agent.status == Agent.Status.PAUSED,
    ),
    Act(
        name="archive",
        label="Archive",
        explains="Hides and stops the agent and its tokens. Its memories and sessions stay.",
        run=_archive_agent,
        preview=_stops_agent,
        undo="restore",
        danger=True,
        offered=_stands,
    ),
    Act(
        name="restore",
        label="Bring back",
        explains="Makes an archived agent work again, as it was.",
        run=_restore_agent,
        undo="archive",
        offered=lambda row: not _stands(row),
    ),
    purge_acts.AGENT,
)


# Apps further left add what they know of an agent when their admin is loaded.
agent_panels: list[Callable[[HttpRequest, Agent], SafeString | None]] = []


class StandingFilter(filters.ChoiceFilter):
    title = "standing"
    parameter_name = "standing"
    options = (("active", "In use"), ("archived", "Archived"))

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value not in dict(self.options):
            return queryset
        return queryset.filter(archived_at__isnull=value == "active")


@admin.register(Space)
class SpaceAdmin(SetUpAdmin[Space]):
    acts: ClassVar[Sequence[Act]] = _SPACE_ACTS
    list_display = ("slug", "name", "state", "default_model", "budget", "made")
    search_fields = ("slug", "name")
    list_filter = (StandingFilter,)
    fields = ("slug", "name", "default_model", "daily_tokens")
    change_form_outer_before_template = "console/acts_before.html"

    def get_readonly_fields(self, request: HttpRequest, obj: Space | None = None) -> tuple[str, ...]:
        return () if obj is None else ("slug",)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return super().change_view(request, object_id, form_url, _with_acts(self, request, object_id, extra_context))

    @admin.display(description="State")
    def state(self, space: Space) -> SafeString:
        return labels.label("archived" if space.archived_at else "active")

    @admin.display(description="Tokens a day", ordering="daily_tokens")
    def budget(self, space: Space) -> str:
        return figures.number(space.daily_tokens) if space.daily_tokens is not None else "the installation's"

    @admin.display(description="Made", ordering="created_at")
    def made(self, space: Space) -> SafeString:
        return figures.when(space.created_at)


class AgentForm(ReasonForm):
    class Meta:
        help_texts: ClassVar[dict[str, str]] = {
            "handle": "How clients and commands name it: it stays.",
            "provider": "Where its model is reached; blank: wherever its model is served.",
            "model": "Blank: the space's model, and where it names none the provider's.",
            "instructions": "What it is to keep to when it is run here.",
        }


@admin.register(Agent)
class AgentAdmin(SetUpAdmin[Agent]):
    form = AgentForm
    acts: ClassVar[Sequence[Act]] = _AGENT_ACTS
    list_display = ("handle", "name", "space", "state", "runs", "provider", "model", "looks", "made")
    list_select_related = ("space", "provider")
    search_fields = ("handle", "name")
    list_filter = (StandingFilter, filters.word("space", "space__slug"), ("status", admin.ChoicesFieldListFilter))
    fields = ("space", "handle", "name", "provider", "model", "instructions", "run_here")
    change_form_outer_before_template = "console/agent_before.html"

    def get_readonly_fields(self, request: HttpRequest, obj: Agent | None = None) -> tuple[str, ...]:
        return () if obj is None else ("space", "handle")

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        context = _with_acts(self, request, object_id, extra_context)
        agent = self.get_object(request, object_id)
        if agent is not None and self.has_view_permission(request):
            context |= self._about(request, agent)
        return super().change_view(request, object_id, form_url, context)

    def response_post_save_add(self, request: HttpRequest, obj: Agent) -> HttpResponseRedirect:
        """To its page: it is connected from there."""
        return HttpResponseRedirect(links.change("agentmemory", "agent", obj.pk))

    def _about(self, request: HttpRequest, agent: Agent) -> dict[str, Any]:
        query = f"agent={agent.handle}&space={agent.space.slug}"
        return {
            "counts": inspection.of_agent(agent) if request.user.has_perm("agentmemory.view_memory") else None,
            "panels": [panel for panel in (make(request, agent) for make in agent_panels) if panel is not None],
            "connect_url": _connect(agent) if request.user.has_perm("agentmemory.add_token") else "",
            "memories_url": links.listing("agentmemory", "memory", query),
            "sessions_url": links.listing("agentmemory", "session", query),
        }

    @admin.display(description="State", ordering="status")
    def state(self, agent: Agent) -> SafeString:
        return labels.label("archived" if agent.archived_at else agent.status)

    @admin.display(description="Run here")
    def runs(self, agent: Agent) -> SafeString | str:
        return labels.label("active", "runs here") if agent.run_here else figures.NONE

    @admin.display(description="Look at")
    def looks(self, agent: Agent) -> SafeString:
        query = f"agent={agent.handle}&space={agent.space.slug}"
        return format_html(
            '<span class="am-acts">{} {}</span>',
            links.anchor(links.listing("agentmemory", "memory", query), "Memories"),
            links.anchor(links.listing("agentmemory", "session", query), "Sessions"),
        )

    @admin.display(description="Made", ordering="created_at")
    def made(self, agent: Agent) -> SafeString:
        return figures.when(agent.created_at)


def _connect(agent: Agent) -> str:
    """Where a token is issued for an agent that may have one."""
    if agent.archived_at is not None or agent.space.archived_at is not None:
        return ""
    query = urlencode({"space": agent.space_id, "agent": agent.handle})
    return f"{reverse('admin:agentmemory_token_add')}?{query}"


def _with_acts(
    model_admin: ActingAdmin[Any], request: HttpRequest, object_id: str, context: dict[str, Any] | None
) -> dict[str, Any]:
    row = model_admin.get_object(request, object_id)
    return {**(context or {}), "acts": model_admin.act_links(row, request) if row else []}
