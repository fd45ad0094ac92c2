"""The web process: the embedded database is held from here until the server's shutdown."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from django.core.asgi import get_asgi_application

from config import embedded, entry

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

# Static files are small and read whole: nothing is gained by reading them in a coroutine.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous iterators")

entry.prepare()
django_application = get_asgi_application()


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
