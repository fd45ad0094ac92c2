"""The demonstration's data: a space, its agents, an operator, sample transcripts, and who may look at them.

Safe to repeat: what is there is found, and what is known is kept. The words for it lie in the data folder, readable
by its owner alone.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from django.conf import settings
from django.contrib.auth import get_user_model

from agentmemory import samples
from agentmemory.models import Agent, Space
from agentmemory.services import providers, sessions, spaces, tokens, transcripts
from distillation.models import Cursor
from distillation.services import coordinator

SPACE = "demo"
AGENTS = {"ada": "Ada", "grace": "Grace"}
SHOWN = "ada"
LOGIN = "demo"
CHANGED = "(changed since)"


@dataclass(frozen=True, kw_only=True)
class Access:
    """How one gets in: an operator's login for the admin, and an agent's token for everything else."""

    login: str
    password: str
    token: str


def prepare() -> Access:
    """Make what is missing, ask for the samples' distillation, and say how one gets in."""
    for name in ("offline", "anthropic"):
        providers.ensure(name)
    space = spaces.ensure(SPACE, "Demonstration")
    agents = {handle: _agent(space, handle, name) for handle, name in AGENTS.items()}
    for sample in samples.load():
        _take_in(agents[sample.agent], sample)
    return _access(space, agents[SHOWN])


def is_distilled() -> bool:
    """Whether none of the samples is due any more, whatever else was brought into their space."""
    names = [sample.id for sample in samples.load()]
    return not Cursor.objects.behind().filter(space__slug=SPACE, session__name__in=names).exists()


def _agent(space: Space, handle: str, name: str) -> Agent:
    """The agent. A new one answers what is sent to its sessions, here; what a person set since stays."""
    is_new = not space.agents.filter(handle=handle).exists()
    agent = spaces.ensure_agent(space, handle, name)
    if is_new:
        agent.run_here = True
        agent.save(update_fields=["run_here"])
    return agent


def _take_in(agent: Agent, sample: samples.Sample) -> None:
    session, _ = sessions.adopt(agent=agent, name=sample.id, title=sample.title)
    messages = [
        transcripts.NewMessage(
            uid=message.uid, type=message.type, content=message.content, occurred_at=message.occurred_at
        )
        for message in sample.messages
    ]
    if transcripts.append(session=session, messages=messages).accepted:
        coordinator.request(session=session, force=True)


def _access(space: Space, agent: Agent) -> Access:
    place = settings.AGENTMEMORY_DATA_DIR / "demo.json"
    kept = _read(place)
    access = Access(
        login=LOGIN,
        password=_password(kept.get("password") or secrets.token_urlsafe(12), known="password" in kept),
        token=_token(kept.get("token", ""), space=space, agent=agent),
    )
    if access.password != CHANGED:
        _write(place, access)
    return access


def _password(password: str, *, known: bool) -> str:
    """The password of the demonstration's operator, who is made with it; one that a person changed is not known."""
    users = get_user_model().objects
    user = users.filter(username=LOGIN).first()
    if user is None:
        users.create_superuser(username=LOGIN, password=password)
    elif not known:
        user.set_password(password)
        user.save(update_fields=["password"])
    elif not user.check_password(password):
        return CHANGED
    return password


def _token(plain: str, *, space: Space, agent: Agent) -> str:
    caller = tokens.authenticate(plain)
    if caller is not None and caller.agent == agent:
        return plain
    return tokens.issue(space=space, agent=agent, name="demonstration").plain


def _read(place: Path) -> dict[str, str]:
    try:
        found = json.loads(place.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return {name: str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def _write(place: Path, access: Access) -> None:
    """Written beside its place and moved there, so that nobody reads half of it or finds it open to others."""
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = place.with_name(f"{place.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(asdict(access), file, indent=1)
    draft.replace(place)
