"""The web process: the embedded database is held from here until the server's shutdown."""

from __future__ import annotations

import warnings

from django.conf import settings
from django.core.asgi import get_asgi_application

from config import bodies, embedded, entry
from config.bodies import Receive, Scope, Send

# Static files are small and read whole: nothing is gained by reading them in a coroutine.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous iterators")

entry.prepare()
django_application = bodies.bounded(get_asgi_application(), largest=settings.DATA_UPLOAD_MAX_MEMORY_SIZE)


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Every request is Django's; the server's own start and end are answered here."""
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
    else:
        await django_application(scope, receive, send)


async def _lifespan(receive: Receive, send: Send) -> None:
    """Answer start and shutdown. A server that was told to end by a signal never comes to `atexit`."""
    while (await receive())["type"] != "lifespan.shutdown":
        await send({"type": "lifespan.startup.complete"})
    embedded.release()
    await send({"type": "lifespan.shutdown.complete"})
