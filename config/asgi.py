"""The web process: the embedded database is held from here until the server's shutdown."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.core.asgi import get_asgi_application

from config import bodies, embedded, entry, requests
from config.bodies import Receive, Scope, Send

# Static files are small and read whole: nothing is gained by reading them in a coroutine.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous iterators")

MCP_PATH = "/mcp"

entry.prepare()
django_application = bodies.bounded(get_asgi_application(), largest=settings.DATA_UPLOAD_MAX_MEMORY_SIZE)

from agentmemory import mcp  # noqa: E402  (needs the apps, which are loaded by now)

mcp_application = mcp.TokenGate(mcp.application(path=MCP_PATH, hosts=settings.ALLOWED_HOSTS))


async def _application(scope: Scope, receive: Receive, send: Send) -> None:
    """The tools' path and the server's own start and end belong to the tools; every other request is Django's."""
    if scope["type"] == "lifespan":
        await mcp_application(scope, receive, _releasing(send))
    elif scope["path"].rstrip("/") == MCP_PATH:
        await mcp_application({**scope, "path": MCP_PATH, "raw_path": MCP_PATH.encode()}, receive, send)
    else:
        await django_application(scope, receive, send)


application = requests.identified(_application)


def _releasing(send: Send) -> Send:
    """Let the embedded database go at the shutdown: a server that a signal ends never comes to `atexit`."""

    async def sent(message: Mapping[str, Any]) -> None:
        if message["type"].startswith("lifespan.shutdown"):
            embedded.release()
        await send(message)

    return sent
