"""The wire under a provider's SDK: sends what the caller asked for and nothing more, reads a bounded answer.

An SDK adds headers of its own and takes others from the environment. Here each request is written anew from
its method, its address, its body and the headers given, so that nothing ambient reaches the wire (D18).
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import AsyncIterator, Mapping

import httpx2

MAX_BODY_BYTES = 8 * 1024 * 1024
"""Far above any answer that the token limits allow (A4)."""


@functools.cache
def _certificates() -> ssl.SSLContext:
    """Whom to trust. Reading the certificates takes as long as all else of a call, and they are the same for each."""
    return httpx2.create_ssl_context(trust_env=False)


class BodyTooLarge(httpx2.TransportError):
    """The answer's body is over the bound, or its size cannot be bounded."""


class BoundedStream(httpx2.AsyncByteStream):
    """A response body that ends with an error once it is over the limit."""

    def __init__(self, stream: httpx2.AsyncByteStream, *, limit: int) -> None:
        self._stream = stream
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        total = 0
        async for chunk in self._stream:
            total += len(chunk)
            if total > self._limit:
                raise BodyTooLarge(f"the answer is larger than {self._limit} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class PlainTransport(httpx2.AsyncBaseTransport):
    """Direct connections without proxies, the given headers alone, a bounded and uncompressed body."""

    def __init__(self, *, headers: Mapping[str, str], limit: int = MAX_BODY_BYTES) -> None:
        self._headers = dict(headers)
        self._limit = limit
        self._inner = httpx2.AsyncHTTPTransport(verify=_certificates(), trust_env=False, retries=0)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        plain = httpx2.Request(
            request.method,
            request.url,
            # A compressed body could unfold to any size, so none is asked for, and none is read.
            headers={**self._headers, "Accept-Encoding": "identity"},
            content=await request.aread(),
            extensions=request.extensions,
        )
        response = await self._inner.handle_async_request(plain)
        if response.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
            await response.aclose()
            raise BodyTooLarge("the answer is compressed although none was asked for")
        assert isinstance(response.stream, httpx2.AsyncByteStream)  # noqa: S101 an async transport gives no other
        response.stream = BoundedStream(response.stream, limit=self._limit)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()
