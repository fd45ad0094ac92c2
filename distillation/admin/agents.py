"""What distillation knows of an agent: which provider and model serve it, by which rule, and what it used."""

from __future__ import annotations

from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agentmemory.admin import spaces
from agentmemory.console import figures, labels, links, permissions
from agentmemory.models import Agent, Provider
from agentmemory.services import activity, providers
from distillation.services import coordinator, resolution, spending
from sessions_exec.admin import task_words


def _panel(request: HttpRequest, agent: Agent) -> SafeString | None:
    if not request.user.has_perm("distillation.view_cursor"):
        return None
    resolved = resolution.resolve(agent)
    lines = (resolution.unusable(resolved), resolution.obstacle(resolved), _pause(request, resolved.provider))
    used = spending.of(agent, days=30)
    query = f"agent={agent.handle}&space={agent.space.slug}"
    return format_html(
        '<dl class="am-facts" id="distillation"><dt>Distillation</dt><dd>{}</dd><dt>Distilled by</dt><dd>{} · {} '
        '<span class="am-line">{}{}</span></dd><dt>Used in 30 days</dt><dd>{} tokens · {}</dd>'
        "<dt>Look at</dt><dd>{} · {}</dd></dl>",
        _standing(agent),
        links.anchor(links.change("agentmemory", "provider", resolved.provider.pk), resolved.provider),
        resolved.model,
        resolved.reason,
        "".join(f"; {line}" for line in lines if line),
        figures.number(used.tokens),
        figures.money(used.cost),
        links.anchor(links.listing("distillation", "cursor", query), "what waits"),
        links.anchor(links.listing("distillation", "distillationpass", query), "its passes"),
    )


def _standing(agent: Agent) -> SafeString:
    """Whether its sessions are distilled; where they are not, who said so, when and why."""
    if agent.status == Agent.Status.ACTIVE:
        return labels.label(agent.status)
    act = activity.newest("pause", target=agent)
    if act is None:
        return labels.label(agent.status)
    return format_html("{} by {}, {}: {}", labels.label(agent.status), act.who, figures.when(act.at), act.reason)


def _pause(request: HttpRequest, provider: Provider) -> str:
    return providers.pause_line(provider, now=timezone.now(), private=permissions.reads_private(request))


def _task(function: str, argument: str) -> SafeString | None:
    if function != coordinator.TASK:
        return None
    return links.anchor(links.change("agentmemory", "agent", argument), "distils the sessions of an agent")


spaces.agent_panels.append(_panel)
task_words.says.append(_task)
