"""Real web servers within the test's process, on the test's database."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from django.db import connections

from agentmemory import mcp


@contextmanager
def serving(application: Any, *, lifespan: str = "auto") -> Iterator[str]:
    """An ASGI application on a port of its own, for the length of a block; gives its address."""
    # A connection ends with its request: none is left when the database goes.
    kept = connections.settings["default"]["CONN_MAX_AGE"]
    connections.settings["default"]["CONN_MAX_AGE"] = 0
    config = uvicorn.Config(application, log_config=None, access_log=False, lifespan=lifespan)  # type: ignore[arg-type]
    config.load()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(10)
            connections.settings["default"]["CONN_MAX_AGE"] = kept


@contextmanager
def tools() -> Iterator[str]:
    """The memory tools alone, at `/mcp`. A server of its own each time: their application can be started once."""
    with serving(mcp.TokenGate(mcp.application(path="/mcp", hosts=["127.0.0.1"]))) as address:
        yield f"{address}/mcp"
