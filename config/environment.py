"""Typed readers of the environment, used by the settings alone.

Every reader takes the variable's name and its default, and treats an empty value as unset. A value that
cannot be read stops the start with one sentence that names the variable and never repeats a secret.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured
from dotenv import dotenv_values

YES = frozenset({"1", "true", "yes", "on"})
NO = frozenset({"0", "false", "no", "off"})
POSTGRES_SCHEMES = frozenset({"postgres", "postgresql"})


@dataclass(frozen=True)
class DatabaseUrl:
    """The parts of a `postgres://` address; `options` are libpq's connection parameters such as `sslmode`."""

    host: str
    port: str
    name: str
    user: str
    password: str
    options: dict[str, str]


def load(default_file: Path) -> None:
    """Take over the `.env` file, without overruling what the process was started with.

    `AGENTMEMORY_ENV_FILE` names another file; `none` means no file at all.
    """
    chosen = os.environ.get("AGENTMEMORY_ENV_FILE", "")
    if chosen == "none":
        return
    path = Path(chosen) if chosen else default_file
    if chosen and not path.is_file():
        raise ImproperlyConfigured(f"AGENTMEMORY_ENV_FILE names a file that is not there: {chosen}")
    if path.is_file():
        for name, value in dotenv_values(path).items():
            os.environ.setdefault(name, value or "")


def forget(name: str) -> None:
    """Remove a variable, so that no library reads it behind our back."""
    os.environ.pop(name, None)


def assign(name: str, value: str) -> None:
    """Set a variable, whatever it was, for libraries that are told things in no other way."""
    os.environ[name] = value


def of_child(**values: str) -> dict[str, str]:
    """The environment for a process that this one starts: its own, with these values."""
    return {**os.environ, **values}


def string(name: str, default: str = "") -> str:
    return os.environ.get(name, "").strip() or default


def boolean(name: str, default: bool) -> bool:
    value = string(name).lower()
    if not value:
        return default
    if value not in YES | NO:
        raise ImproperlyConfigured(f"{name} must be true or false, not {value!r}.")
    return value in YES


def integer(name: str, default: int, *, minimum: int = 0) -> int:
    value = optional_integer(name, minimum=minimum)
    return default if value is None else value


def optional_integer(name: str, *, minimum: int = 0) -> int | None:
    """A whole number, or `None` where the variable is unset."""
    value = string(name)
    if not value:
        return None
    try:
        number = int(value)
    except ValueError:
        raise ImproperlyConfigured(f"{name} must be a whole number, not {value!r}.") from None
    if number < minimum:
        raise ImproperlyConfigured(f"{name} must be at least {minimum}, not {number}.")
    return number


def seconds(name: str, default: float) -> float:
    """A length of time in seconds, more than zero; fractions are allowed."""
    value = optional_seconds(name)
    return default if value is None else value


def optional_seconds(name: str) -> float | None:
    """A length of time in seconds, or `None` where the variable is unset."""
    value = string(name)
    if not value:
        return None
    try:
        number = float(value)
    except ValueError:
        raise ImproperlyConfigured(f"{name} must be a number of seconds, not {value!r}.") from None
    if not isfinite(number) or number <= 0:
        raise ImproperlyConfigured(f"{name} must be a number of seconds above zero, not {value!r}.")
    return number


def listing(name: str, default: list[str]) -> list[str]:
    """Values between commas, trimmed, empty ones left out."""
    value = string(name)
    return [part.strip() for part in value.split(",") if part.strip()] if value else default


def choice(name: str, default: str, allowed: frozenset[str]) -> str:
    value = string(name, default)
    if value not in allowed:
        raise ImproperlyConfigured(f"{name} must be one of {', '.join(sorted(allowed))}, not {value!r}.")
    return value


def url(name: str, default: str) -> str:
    """An `http` or `https` address without a trailing slash."""
    value = string(name, default)
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ImproperlyConfigured(f"{name} must be an http or https address.")
    return value.rstrip("/")


def with_prefix(prefix: str) -> Mapping[str, str]:
    """All variables of a prefix that have a value, by their full name."""
    return {name: string(name) for name in sorted(os.environ) if name.startswith(prefix) and string(name)}


def database_url(name: str) -> DatabaseUrl | None:
    """A `postgres://user:password@host:port/name?sslmode=…` address, or `None` where the variable is unset.

    Parts may be percent-encoded; a socket folder goes into `host`, encoded, or into `?host=`.
    """
    value = string(name)
    if not value:
        return None
    try:
        parts = urlsplit(value)
        port = str(parts.port or "")
        host = unquote(parts.hostname or "")
    except ValueError:
        raise ImproperlyConfigured(f"{name} is not an address that can be read.") from None
    if parts.scheme not in POSTGRES_SCHEMES or not parts.path.strip("/"):
        raise ImproperlyConfigured(f"{name} must look like postgres://user:password@host:5432/database.")
    options = dict(parse_qsl(parts.query))
    # `hostname` is lower-cased by the parser, which would break the path of a socket folder.
    if host.startswith("/"):
        host = unquote(parts.netloc.rpartition("@")[2].partition(":")[0])
    return DatabaseUrl(
        host=options.pop("host", host),
        port=options.pop("port", port),
        name=unquote(parts.path.lstrip("/")),
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        options=options,
    )
