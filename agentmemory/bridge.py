"""The tools of a server elsewhere for clients that only speak stdio: each message is carried to its `/mcp` and back.

The bridge knows nothing of memories, and keeps nothing. What it writes on standard output is protocol alone: while it
runs, whatever else would be printed there goes to standard error.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import anyio
import httpx2
from anyio.abc import TaskGroup
from mcp.server.stdio import stdio_server
from mcp.shared import inbound
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from mcp_types import INTERNAL_ERROR, PARSE_ERROR, PROTOCOL_VERSION_META_KEY, ErrorData, jsonrpc_message_adapter
from pydantic import ValidationError

logger = logging.getLogger(__name__)

TIMEOUT = 60.0
"""Seconds for one call, from connecting to the last byte."""

_CANCELLED = "notifications/cancelled"
_REFUSALS = {
    401: "The server does not take the token: it is missing, revoked, expired, or of another server.",
    404: "There are no tools at this address.",
    421: "The server is not served under this name: see ALLOWED_HOSTS there.",
    429: "Too many calls: wait a little.",
}


async def run(*, address: str, token: str) -> None:
    """Carry messages between standard input and output and the tools at `address`, until the input ends.

    What the server refuses, or does not answer, becomes an error of the call, and the bridge goes on.
    """
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    async with (
        # No proxy of the environment: the token is for this server alone.
        httpx2.AsyncClient(headers=headers, timeout=TIMEOUT, trust_env=False, follow_redirects=False) as http,
        stdio_server() as (incoming, outgoing),
        # Closed when every call has its answer: only then does the writer behind it end.
        outgoing,
        anyio.create_task_group() as tasks,
    ):
        bridge = _Bridge(address, http, outgoing, tasks)
        async for entry in incoming:
            await bridge.take(entry)


class _Bridge:
    """One client's conversation with the server. Calls run side by side."""

    def __init__(self, address: str, http: httpx2.AsyncClient, outgoing: Any, tasks: TaskGroup) -> None:
        self.address = address
        self.http = http
        self.outgoing = outgoing
        self.tasks = tasks
        self.running: dict[str | int, anyio.CancelScope] = {}
        # What `initialize` agreed on. Later protocols say it in each message.
        self.version = ""

    async def take(self, entry: SessionMessage | Exception) -> None:
        """Begin with what came from the client; nothing is waited for."""
        if isinstance(entry, Exception):
            await self._answer(_error(None, PARSE_ERROR, "The line is no message of the protocol."))
            return
        message = entry.message
        if isinstance(message, JSONRPCRequest):
            scope = self.running[message.id] = anyio.CancelScope()
            self.tasks.start_soon(self._call, message, scope)
        elif isinstance(message, JSONRPCNotification) and message.method == _CANCELLED:
            cancelled = self.running.get((message.params or {}).get("requestId", ""))
            if cancelled is not None:
                cancelled.cancel()
        elif isinstance(message, JSONRPCNotification):
            self.tasks.start_soon(self._tell, message)

    async def _call(self, message: JSONRPCRequest, scope: anyio.CancelScope) -> None:
        with scope:
            try:
                answer = await self._asked(message)
            except (httpx2.HTTPError, TimeoutError) as error:
                logger.warning("no answer", extra={"action": "bridge.unanswered", "error": type(error).__name__})
                answer = _error(message.id, INTERNAL_ERROR, f"The server at {self.address} does not answer.")
            await self._answer(answer)
        if self.running.get(message.id) is scope:
            del self.running[message.id]

    async def _tell(self, message: JSONRPCNotification) -> None:
        """A notification has no answer, neither a good nor a bad one."""
        try:
            await self._post(message)
        except (httpx2.HTTPError, TimeoutError) as error:
            logger.warning("not told", extra={"action": "bridge.untold", "error": type(error).__name__})

    async def _asked(self, message: JSONRPCRequest) -> JSONRPCResponse | JSONRPCError:
        response = await self._post(message)
        try:
            answer = jsonrpc_message_adapter.validate_json(response.content, by_name=False)
        except ValidationError:
            answer = None
        if not isinstance(answer, JSONRPCResponse | JSONRPCError):
            said = _REFUSALS.get(response.status_code, f"The server answered {response.status_code}.")
            logger.warning(said, extra={"action": "bridge.refused", "status": response.status_code})
            return _error(message.id, INTERNAL_ERROR, said)
        if message.method == "initialize" and isinstance(answer, JSONRPCResponse):
            self.version = str(answer.result.get("protocolVersion", ""))
        return answer.model_copy(update={"id": message.id})

    async def _post(self, message: JSONRPCRequest | JSONRPCNotification) -> httpx2.Response:
        with anyio.fail_after(TIMEOUT):
            return await self.http.post(
                self.address,
                json=message.model_dump(by_alias=True, mode="json", exclude_unset=True),
                headers=_headers(message, self.version),
            )

    async def _answer(self, message: JSONRPCResponse | JSONRPCError) -> None:
        await self.outgoing.send(SessionMessage(message))


def _headers(message: JSONRPCRequest | JSONRPCNotification, agreed: str) -> dict[str, str]:
    """What the protocol wants to see in headers: its version, and in its later form what is called."""
    params: Mapping[str, Any] = message.params or {}
    meta = params.get("_meta")
    version = meta.get(PROTOCOL_VERSION_META_KEY) if isinstance(meta, Mapping) else None
    if not isinstance(version, str):
        return {inbound.MCP_PROTOCOL_VERSION_HEADER: agreed} if agreed and message.method != "initialize" else {}
    headers = {inbound.MCP_PROTOCOL_VERSION_HEADER: version, inbound.MCP_METHOD_HEADER: message.method}
    name = params.get(inbound.NAME_BEARING_METHODS.get(message.method, ""))
    if isinstance(name, str):
        headers[inbound.MCP_NAME_HEADER] = name
    return {header: inbound.encode_header_value(value) for header, value in headers.items()}


def _error(call: str | int | None, code: int, text: str) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=call, error=ErrorData(code=code, message=text))
