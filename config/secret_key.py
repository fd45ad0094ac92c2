"""The secret key of an installation that was given none."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured


def new() -> str:
    """A key that nobody has."""
    return secrets.token_urlsafe(64)


def read_or_create(path: Path) -> str:
    """Return the key kept in `path`, made on first use and readable by its owner alone.

    Two processes may come here at once: the key is written beside its place and linked to it, so that exactly
    one of them wins and nobody reads half a key. Raises `ImproperlyConfigured` where it can be neither read nor kept.
    """
    try:
        with contextlib.suppress(FileNotFoundError):
            return path.read_text(encoding="ascii").strip()
        _create(path)
        return path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise ImproperlyConfigured(
            f"The secret key cannot be kept in {path}: {error.strerror}. "
            "Let AGENTMEMORY_DATA_DIR name a folder that can be written, or set SECRET_KEY."
        ) from error


def _create(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(new())
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
