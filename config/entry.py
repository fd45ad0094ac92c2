"""How a process begins: settings first, then what it was asked for, then the embedded database."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django.db import DatabaseError

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


# Of these, the one that shows the secret key itself: the others get one of their own, and write none.
SHOWS_KEY = "diffsettings"

# Of SQLSTATE: the server is stopped, has crashed, or starts.
GOING_DOWN = frozenset({"57P01", "57P02", "57P03"})


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
    """Run one management command.

    A broken installation, and a database that is not reached or takes no writes, end it with a sentence, Ctrl-C with
    nothing: no trace.
    """
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line
    from django.db import InternalError, OperationalError

    from config import programs

    try:
        _begin(arguments[1] if len(arguments) > 1 else "", arguments)
        execute_from_command_line(list(arguments))
    except (ImproperlyConfigured, programs.CannotStart) as error:
        sys.exit(f"Cannot start: {error}")
    except (InternalError, OperationalError) as error:
        if (words := _in_words(error)) is None:
            raise
        sys.exit(words)
    except KeyboardInterrupt:
        # Asked for. What was in its midst has settled on the way here.
        sys.exit(128 + signal.SIGINT)


def _in_words(error: DatabaseError) -> str | None:
    """What keeps the database from doing its part. What else it says has a number, and is the command's own trouble."""
    from agentmemory import sqlstates
    from config import doctor_database, writing

    state = sqlstates.of(error)
    if state in (sqlstates.READ_ONLY, sqlstates.DISK_FULL):
        return f"The database: {writing.OBSTACLES[state]}."
    if state and state not in GOING_DOWN:
        return None
    found = doctor_database.refused(error)
    return f"The {found.about}: {found.line}. {found.advice} `python manage.py doctor` looks again."


def _begin(command: str, arguments: Sequence[str]) -> None:
    _with_our_settings(arguments)
    if command in WITHOUT_DATABASE:
        if command != SHOWS_KEY:
            _without_key()
        return prepare(database=False)
    prepare(database=False)
    _understood(arguments)
    return prepare()


def _with_our_settings(arguments: Sequence[str]) -> None:
    """Refuse the framework's option for others: ours are read before it would be, and it would change nothing."""
    from django.core.exceptions import ImproperlyConfigured

    if any(argument.partition("=")[0] == "--settings" for argument in arguments[1:]):
        raise ImproperlyConfigured("--settings is not taken here: settings come from the environment and `.env` alone.")


def _without_key() -> None:
    """Leave no key behind: a client of a server elsewhere, say, needs none, and may run in anybody's folder."""
    from config import secret_key

    os.environ.setdefault("SECRET_KEY", secret_key.new())


def _understood(arguments: Sequence[str]) -> None:
    """End with what is wrong with the arguments, or with the help, before anything is made or started for them."""
    import django
    from django.core.management import ManagementUtility

    django.setup()
    program, name, *rest = arguments
    command = ManagementUtility([program, name]).fetch_command(name)
    # As Django does it itself: else a mistake would be a trace.
    setattr(command, "_called_from_command_line", True)  # noqa: B010  # in no stub
    command.create_parser(program, name).parse_args(rest)
