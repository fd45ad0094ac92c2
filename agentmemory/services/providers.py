"""The built-in providers, and where each provider is reached. Keys stay in the environment."""

from __future__ import annotations

import ipaddress
import socket
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings

from agentmemory import addresses
from agentmemory.errors import Invalid
from agentmemory.models import Provider

BUILT_IN_MODEL = "claude-haiku-5-5"
ANTHROPIC_HOST = "api.anthropic.com"
NO_KEY_NEEDED = "none"

_BUILT_IN: dict[str, dict[str, Any]] = {
    "anthropic": {
        "kind": Provider.Kind.ANTHROPIC,
        "key_variable": "ANTHROPIC_API_KEY",
        "default_model": BUILT_IN_MODEL,
        "structured_outputs": True,
    },
    "offline": {"kind": Provider.Kind.OFFLINE, "default_model": "offline"},
}


def built_in() -> Provider:
    """The provider of those who name none: `anthropic` with its key set, else `offline`."""
    name = "anthropic" if settings.AGENTMEMORY_PROVIDER_KEYS.get("ANTHROPIC_API_KEY") else "offline"
    return ensure(name)


def ensure(name: str) -> Provider:
    """The row of a built-in provider, made where it is missing."""
    return Provider.objects.get_or_create(name=name, defaults=_BUILT_IN[name])[0]


def serving(model: str) -> Provider | None:
    """The first provider that is known to serve a model."""
    for provider in Provider.objects.enabled().order_by("pk"):
        if model == provider.default_model or model in provider.served_models:
            return provider
    return None


def address(provider: Provider) -> str:
    """Where a provider is reached. Raises `Invalid` for a private address that no setting allows."""
    if not provider.address:
        # Set by whoever runs the installation, in the environment: trusted as it is.
        return str(settings.ANTHROPIC_BASE_URL)
    check_address(provider.address)
    return provider.address


def check_address(url: str) -> None:
    """Raise `Invalid` unless `url` is http or https, and public where nothing else is allowed."""
    try:
        parts = urlsplit(url)
        host = parts.hostname if parts.scheme in {"http", "https"} and parts.port != 0 else None
    except ValueError:
        raise Invalid("This is no address.", field="address") from None
    if not host:
        raise Invalid("An address begins with http:// or https://, then a host.", field="address")
    if parts.username or parts.password:
        # It would be a key in the database.
        raise Invalid("An address holds no name and no password: a key stands in its variable.", field="address")
    if settings.AGENTMEMORY_ALLOW_PRIVATE_ADDRESSES:
        return
    for found in _addresses(host):
        if not addresses.public(found):
            raise Invalid(
                "The address is private; AGENTMEMORY_ALLOW_PRIVATE_ADDRESSES=true would allow it.", field="address"
            )


def key(provider: Provider) -> str | None:
    """A provider's key from the environment; nothing where its variable is not set."""
    if not provider.key_variable:
        return NO_KEY_NEEDED
    return settings.AGENTMEMORY_PROVIDER_KEYS.get(provider.key_variable) or None


def pause_line(provider: Provider, *, now: datetime, private: bool) -> str:
    """Who or what keeps a provider from being called, until when and why, in one line; empty while nothing does.

    An operator's own pause ends when an operator says so; the one that failures bring ends by itself (D19, D24). What
    the provider has said then may quote what it was sent: it is left out for who may not read what is private.
    """
    if provider.stopped_at is not None:
        return f"paused by {provider.stopped_by.partition(':')[2]}: {provider.stopped_reason}"
    if provider.paused_until is not None and provider.paused_until > now:
        said = f": {provider.paused_reason}" if private else ""
        return f"paused until {provider.paused_until:%Y-%m-%d %H:%M} UTC{said}"
    return ""


def takes_structured_outputs(provider: Provider) -> bool:
    """Whether it is known to serve structured outputs: the built-in address only while it is Anthropic's own."""
    if not provider.address and urlsplit(settings.ANTHROPIC_BASE_URL).hostname != ANTHROPIC_HOST:
        return False
    return provider.structured_outputs


def _addresses(host: str) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    try:
        return [ipaddress.ip_address(host)]
    except ValueError:
        pass
    try:
        return [ipaddress.ip_address(info[4][0]) for info in socket.getaddrinfo(host, None)]
    except OSError:
        # It cannot be resolved now; the call itself will say so.
        return []
    except UnicodeError:
        # A part of the name is longer than any name's may be.
        raise Invalid("This is no address.", field="address") from None
