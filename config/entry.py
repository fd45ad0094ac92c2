"""How a process begins: settings first, then the embedded database, then Django."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

# Commands that do their work without a database.
WITHOUT_DATABASE = frozenset(
    {
        "",
        "help",
        "version",
        "--help",
        "-h",
        "--version",
        "check",
        "collectstatic",
        "findstatic",
        "diffsettings",
        "mcp_stdio",
    }
)


def prepare(*, database: bool = True) -> None:
    """Read the settings, and hold the embedded database where it is the one in use.

    Raises `ImproperlyConfigured` and `programs.CannotStart`.
    """
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    from django.conf import settings

    if settings.AGENTMEMORY_EMBEDDED and database:
        from config import embedded

        embedded.ensure(settings.AGENTMEMORY_DATA_DIR)


def command_line(arguments: Sequence[str]) -> None:
    """Run one management command. A broken installation ends it with a sentence, Ctrl-C with nothing: no trace."""
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    from config import programs

    command = arguments[1] if len(arguments) > 1 else ""
    try:
        prepare(database=command not in WITHOUT_DATABASE and "--help" not in arguments)
    except (ImproperlyConfigured, programs.CannotStart) as error:
        sys.exit(f"Cannot start: {error}")
    try:
        execute_from_command_line(list(arguments))
    except KeyboardInterrupt:
        # Asked for. What was in its midst has settled on the way here.
        sys.exit(128 + signal.SIGINT)
