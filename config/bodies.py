"""A bound for what a request may bring along, before any of it is kept (A4).

Django reads the whole body, onto the disk where it is large, before a view can say anything, and asks a body without a
declared length nothing at all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

# A client that still sends hears no answer: it is let finish, within reason.
DISCARDED = 64 * 1024 * 1024


def bounded(application: Application, *, largest: int) -> Application:
    """`application`, which no request reaches with a body of more than `largest` bytes: it is answered 413."""

    async def bounded_application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await application(scope, receive, send)
            return
        received = 0

        async def counted() -> dict[str, Any]:
            nonlocal received
            event = await receive()
            received += len(event.get("body", b""))
            if received > largest:
                await _discard(event, receive)
                # To the application it is a client that went away: it lets go of what it has, and answers nothing.
                return {"type": "http.disconnect"}
            return event

        await application(scope, counted, send)
        if received > largest:
            await _refuse(send, f"A body may have {largest:,} bytes.")

    return bounded_application


async def _discard(event: dict[str, Any], receive: Receive) -> None:
    left = DISCARDED
    while event.get("more_body") and left > 0:
        event = await receive()
        left -= len(event.get("body", b""))


async def _refuse(send: Send, detail: str) -> None:
    # Imported late: this module is read before Django is set up.
    from agentmemory.api import problems

    answer = problems.response(413, detail)
    headers = [(name.lower().encode(), value.encode()) for name, value in answer.headers.items()]
    headers += [(b"content-length", str(len(answer.content)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": answer.content})
