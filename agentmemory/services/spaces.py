"""Spaces and agents: made, paused, archived. Archiving hides and stops, and loses nothing (T4)."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.utils import timezone

from agentmemory.errors import Invalid, NotFound
from agentmemory.models import Agent, Space


def ensure(slug: str, name: str = "") -> Space:
    """The space of this slug, made where it is missing. Raises `Invalid` for a slug of another shape."""
    space = Space.objects.filter(slug=slug).first()
    if space is None:
        _check(Space(slug=slug, name=name))
        space, _ = Space.objects.get_or_create(slug=slug, defaults={"name": name})
    return space


def ensure_agent(space: Space, handle: str, name: str = "") -> Agent:
    """The agent of this handle in a space, made where it is missing. Raises `Invalid` for a handle of another shape."""
    agent = Agent.objects.filter(space=space, handle=handle).first()
    if agent is None:
        _check(Agent(space=space, handle=handle, name=name))
        agent, _ = Agent.objects.get_or_create(space=space, handle=handle, defaults={"name": name})
    return agent


def get(slug: str) -> Space:
    """The space of this slug. Raises `NotFound`."""
    space = Space.objects.active().filter(slug=slug).first()
    if space is None:
        raise NotFound(f"There is no space {slug!r}.")
    return space


def find(slug: str) -> Space | None:
    """The space of this slug, if there is one."""
    return Space.objects.active().filter(slug=slug).first()


def get_agent(space: Space, handle: str) -> Agent:
    """The agent of this handle in a space. Raises `NotFound`."""
    agent = Agent.objects.present().filter(space=space, handle=handle).first()
    if agent is None:
        raise NotFound(f"There is no agent {handle!r} in the space {space.slug!r}.")
    return agent


def archive(*, space_id: int) -> None:
    """Hide and stop a space, its agents and its tokens with it. Raises `Invalid` where it is archived."""
    rows = Space.objects.filter(pk=space_id, archived_at__isnull=True)
    _done(rows.update(archived_at=timezone.now()), otherwise="The space is archived already.")


def restore(*, space_id: int) -> None:
    """Bring an archived space back as it was. Raises `Invalid` where it is not archived."""
    rows = Space.objects.filter(pk=space_id, archived_at__isnull=False)
    _done(rows.update(archived_at=None), otherwise="The space is back already.")


def archive_agent(*, agent_id: int) -> None:
    """Hide and stop an agent, its tokens with it. Its memories and sessions stay. Raises `Invalid` where it is so."""
    rows = Agent.objects.filter(pk=agent_id, archived_at__isnull=True)
    _done(rows.update(archived_at=timezone.now()), otherwise="The agent is archived already.")


def restore_agent(*, agent_id: int) -> None:
    """Bring an archived agent back as it was. Raises `Invalid` where it is not archived."""
    rows = Agent.objects.filter(pk=agent_id, archived_at__isnull=False)
    _done(rows.update(archived_at=None), otherwise="The agent is back already.")


def pause_agent(*, agent_id: int) -> None:
    """Stop the distillation of an agent's sessions; it goes on reading and writing. Raises `Invalid` where it is so."""
    rows = Agent.objects.filter(pk=agent_id, status=Agent.Status.ACTIVE)
    _done(rows.update(status=Agent.Status.PAUSED), otherwise="The agent is paused already.")


def resume_agent(*, agent_id: int) -> None:
    """Let the distillation of an agent's sessions go on. Raises `Invalid` where it is not paused."""
    rows = Agent.objects.filter(pk=agent_id, status=Agent.Status.PAUSED)
    _done(rows.update(status=Agent.Status.ACTIVE), otherwise="The agent is not paused.")


def _done(changed: int, *, otherwise: str) -> None:
    """Tell the second of two who do the same at once: the database lets one of them find the row as it was."""
    if not changed:
        raise Invalid(otherwise)


def _check(row: Space | Agent) -> None:
    try:
        row.full_clean(validate_unique=False, validate_constraints=False)
    except ValidationError as error:
        field, messages = next(iter(error.message_dict.items()))
        raise Invalid(messages[0], field=field) from error
