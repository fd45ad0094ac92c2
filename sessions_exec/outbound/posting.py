"""One POST to an address that an operator named, and to nothing in a private network.

The name is looked up here, every address that it has is judged, and the connection goes to one of just those: a name
that answers otherwise a moment later gains nothing. TLS and `Host` still go by the name. No proxy, no redirect, no
ambient header; of the answer only its status is read, and all of it together has one time limit.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import socket
import ssl
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import httpcore2
import httpx2

from agentmemory import addresses
from agentmemory.errors import Invalid
from sessions_exec import loops

LOWEST_FREE_PORT = 1024
WEB_PORTS = frozenset({80, 443})
ADDRESSES_TRIED = 3
# The first that is among the causes of an error.
_KNOWN: dict[type[BaseException], str] = {
    socket.gaierror: "its host's name is not known",
    ConnectionRefusedError: "nobody listens there",
    ssl.SSLCertVerificationError: "its certificate is not trusted",
    ssl.SSLError: "it does not speak TLS as we do",
    ConnectionResetError: "it closed the connection",
}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came back: a status, or why there is none. `retry_after` is in seconds, where the receiver asked for it."""

    status: int | None = None
    error: str = ""
    seconds: float = 0.0
    retry_after: float = 0.0

    @property
    def taken(self) -> bool:
        """Whether the receiver has it now: any 2xx says so, and nothing else."""
        return self.status is not None and 200 <= self.status < 300


class AddressRefused(Exception):
    """The address is one that is not called from here."""


def check_url(url: str, *, private: bool) -> None:
    """Raise `Invalid` unless `url` may be posted to. A name that cannot be looked up now is judged at each call.

    `private` is whether private addresses and plain http are allowed.
    """
    parsed = _parsed(url, private=private)
    try:
        found = [info[4][0] for info in socket.getaddrinfo(parsed.raw_host.decode(), None, type=socket.SOCK_STREAM)]
    except OSError:
        return
    except UnicodeError:
        # A part of the name is longer than any name's may be.
        raise Invalid("This is no address.", field="url") from None
    try:
        _judge(found, private=private)
    except AddressRefused as error:
        text = str(error)
        raise Invalid(f"{text[0].upper()}{text[1:]}.", field="url") from error


def post(*, url: str, body: bytes, headers: Mapping[str, str], private: bool, seconds: float) -> Answer:
    """Send `body`. Blocks for `seconds` at most; raises nothing, the answer says what went wrong."""
    begun = time.monotonic()
    try:
        answer = loops.run(_bounded(url, body, headers, private, seconds))
    except Invalid as error:
        answer = Answer(error=str(error))
    return Answer(**{**vars(answer), "seconds": round(time.monotonic() - begun, 3)})


def _parsed(url: str, *, private: bool) -> httpx2.URL:
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError):
        raise Invalid("This is no address.", field="url") from None
    if parsed.scheme not in {"https", "http"} or not parsed.raw_host:
        raise Invalid("An address begins with https://, then a host.", field="url")
    if parsed.scheme == "http" and not private:
        raise Invalid("An address begins with https://.", field="url")
    if parsed.userinfo:
        raise Invalid("An address holds no name and no password: calls are signed instead.", field="url")
    if parsed.port is not None and parsed.port < LOWEST_FREE_PORT and parsed.port not in WEB_PORTS:
        raise Invalid("This port belongs to a service that takes no webhooks.", field="url")
    return parsed


async def _bounded(url: str, body: bytes, headers: Mapping[str, str], private: bool, seconds: float) -> Answer:
    try:
        async with asyncio.timeout(seconds):
            return await _send(_parsed(url, private=private), body, headers, private)
    except (TimeoutError, httpcore2.TimeoutException):
        return Answer(error=f"no answer within {seconds:g} s")
    except AddressRefused as error:
        return Answer(error=str(error))
    except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError, ValueError) as error:
        return Answer(error=f"no connection: {_kind(error)}")


async def _send(url: httpx2.URL, body: bytes, headers: Mapping[str, str], private: bool) -> Answer:
    sent = {"Host": url.netloc.decode(), "User-Agent": "agent-memory-webhooks", "Content-Type": "application/json"}
    pool = httpcore2.AsyncConnectionPool(
        ssl_context=_certificates(), max_connections=1, network_backend=_Judging(private=private)
    )
    request = httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
    all_headers = {**sent, **headers, "Content-Length": str(len(body)), "Connection": "close"}
    async with pool, pool.stream("POST", request, headers=list(all_headers.items()), content=body) as response:
        waits = [_seconds(value) for name, value in response.headers if name.lower() == b"retry-after"]
        return Answer(status=response.status, error=_told(response.status), retry_after=max(waits, default=0.0))


class _Judging(httpcore2.AsyncNetworkBackend):
    """Connects to addresses that were judged, and to nothing by its name."""

    def __init__(self, *, private: bool) -> None:
        self._private = private
        self._inner = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        judged = _judge([info[4][0] for info in found], private=self._private)
        error: Exception = AddressRefused("the name has no address")
        for address in judged[:ADDRESSES_TRIED]:
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except httpcore2.NetworkError as failed:
                error = failed
        raise error


def _judge(found: Iterable[str | int], *, private: bool) -> list[str]:
    """The addresses of a name, each once. Raises `AddressRefused` if one of them is not to be called."""
    names = list(dict.fromkeys(str(each) for each in found))
    for name in names:
        address = ipaddress.ip_address(name.partition("%")[0])
        if addresses.forbidden(address):
            raise AddressRefused("the address is one of a machine's own network, which is never called")
        if not private and not addresses.public(address):
            raise AddressRefused("the address is private, which AGENTMEMORY_WEBHOOK_PRIVATE_ADDRESSES=true would allow")
    return names


@functools.cache
def _certificates() -> ssl.SSLContext:
    return httpx2.create_ssl_context(trust_env=False)


def _kind(error: Exception) -> str:
    """What went wrong, in words where they are known, else the kinds of the error and of what it came from.

    The text of a library may hold what the receiver sent: it is never told.
    """
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and len(causes) < 4:
        causes.append(cause)
        # The library hands on what it caught as its argument.
        cause = cause.__cause__ or next((each for each in cause.args if isinstance(each, BaseException)), None)
    known = (words for kind, words in _KNOWN.items() if any(isinstance(each, kind) for each in causes))
    return next(known, ", ".join(dict.fromkeys(type(each).__name__ for each in causes)))


def _told(status: int) -> str:
    if 200 <= status < 300:
        return ""
    return f"answered {status}" + (": redirects are not followed" if 300 <= status < 400 else "")


def _seconds(value: bytes) -> float:
    return float(value) if value.isdigit() and len(value) < 7 else 0.0
