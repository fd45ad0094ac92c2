"""Gives each request its id, at the outermost place there is: the tools and refused bodies have one, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from agentmemory import tracing
from config.bodies import Application, Receive, Scope, Send

_NAME = tracing.HEADER.lower().encode()


def identified(application: Application) -> Application:
    """`application`, whose every answer says the id of its request."""

    async def identified_application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await application(scope, receive, send)
            return
        known = {name: value for name, value in scope["headers"] if name == _NAME}
        chosen = tracing.begin(known.get(_NAME, b"").decode("latin-1"))
        # The framework's own middleware finds it there, and chooses no other.
        others = [(name, value) for name, value in scope["headers"] if name != _NAME]
        told = {**scope, "headers": [*others, (_NAME, chosen.encode())]}

        async def sent(message: Mapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                kept = [(name, value) for name, value in message.get("headers", ()) if name.lower() != _NAME]
                message = {**message, "headers": [*kept, (_NAME, chosen.encode())]}
            await send(message)

        await application(told, receive, sent)

    return identified_application


class RequestIdMiddleware(MiddlewareMixin):
    """The same for the framework, whatever serves it."""

    def process_request(self, request: HttpRequest) -> None:
        tracing.begin(request.headers.get(tracing.HEADER))

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        response.headers[tracing.HEADER] = tracing.current()
        return response
