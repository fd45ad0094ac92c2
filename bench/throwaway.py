"""A database that lasts as long as a measurement."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator


@contextlib.contextmanager
def database() -> Iterator[None]:
    """Django, set up on a migrated database of its own, beside the configured one or on a server of its own."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    import django
    from django.conf import settings
    from django.db import connection

    from config import embedded

    if settings.AGENTMEMORY_EMBEDDED:
        embedded.ensure(settings.AGENTMEMORY_DATA_DIR, durable=False)
    django.setup()
    name = settings.DATABASES["default"]["NAME"]
    try:
        connection.creation.create_test_db(verbosity=0, autoclobber=True)
        try:
            yield
        finally:
            connection.creation.destroy_test_db(name, verbosity=0)
    finally:
        embedded.release()
        shutil.rmtree(settings.AGENTMEMORY_DATA_DIR, ignore_errors=True)
