"""The web process: the embedded database is held from here until the server's shutdown."""

from __future__ import annotations

from django.core.asgi import get_asgi_application

from config import entry

entry.prepare()

application = get_asgi_application()
