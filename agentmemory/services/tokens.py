"""Tokens: made once, kept as digests, found by their prefix (T3)."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from agentmemory import notes
from agentmemory.callers import Caller
from agentmemory.errors import Invalid
from agentmemory.models import Agent, Space, Token

_ALPHABET = string.ascii_lowercase + string.digits
_SHAPE = re.compile(r"\Aamt_([a-z0-9]{8})_[A-Za-z0-9_-]{43}\Z")
# Compared against where a prefix is unknown, so that a wrong prefix takes as long as a wrong secret.
_NOBODY = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, kw_only=True)
class Issued:
    """A new token: the only time its plain text is known."""

    token: Token
    plain: str


def issue(
    *,
    space: Space,
    agent: Agent | None = None,
    name: str = "",
    expires_at: datetime | None = None,
    calls_per_minute: int | None = None,
) -> Issued:
    """Make a token for an agent, or without one for the whole space. Raises `Invalid` across spaces."""
    if agent is not None and agent.space_id != space.pk:
        raise Invalid("The agent belongs to another space.", field="agent")
    if expires_at is not None and expires_at <= timezone.now():
        raise Invalid("The expiry must lie ahead.", field="expires_at")
    prefix = "".join(secrets.choice(_ALPHABET) for _ in range(8))
    plain = f"amt_{prefix}_{secrets.token_urlsafe(32)}"
    token = Token.objects.create(
        space=space,
        agent=agent,
        name=name,
        prefix=prefix,
        digest=_digest(plain),
        expires_at=expires_at,
        calls_per_minute=calls_per_minute,
    )
    return Issued(token=token, plain=plain)


def authenticate(plain: str) -> Caller | None:
    """The caller that a token proves, or nobody: unknown, revoked, expired and archived are the same to a stranger."""
    shape = _SHAPE.match(plain)
    token = None
    if shape is not None:
        known = Token.objects.valid().select_related("space", "agent", "agent__space")
        token = known.filter(prefix=shape[1]).first()
    if not hmac.compare_digest(token.digest if token else _NOBODY, _digest(plain)) or token is None:
        return None
    with notes.beside_a_read():
        Token.objects.touch(token.pk)
    return Caller(
        space=token.space,
        agent=token.agent,
        name=token.name or token.prefix,
        token_id=token.pk,
        calls_per_minute=token.calls_per_minute,
    )


def revoke(*, token_id: int) -> None:
    """Make a token worthless from now on. Revoking twice keeps the first time."""
    Token.objects.filter(pk=token_id, revoked_at__isnull=True).update(revoked_at=timezone.now())


def limit(*, token_id: int, calls_per_minute: int | None) -> None:
    """Set how many calls it may make in a minute: 0 is no limit, nothing is the installation's setting.

    Processes that have permits of the running minute left use them up first.
    """
    Token.objects.filter(pk=token_id).update(calls_per_minute=calls_per_minute)


def _digest(plain: str) -> str:
    # A token holds 256 random bits: a plain hash is enough, there is nothing to guess.
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()
