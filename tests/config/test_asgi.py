"""The JSON views behind the real web server: what it makes of paths, bodies and headers."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote

import pytest
import uvicorn
from django.core.asgi import get_asgi_application
from django.db import connections

from config import bodies
from tests.factories import AgentFactory
from tests.support.clients import of_agent

LARGEST = 9 * 1024 * 1024


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    # A connection ends with its request: none is left when the database goes.
    kept = connections.settings["default"]["CONN_MAX_AGE"]
    connections.settings["default"]["CONN_MAX_AGE"] = 0
    application: Any = bodies.bounded(get_asgi_application(), largest=LARGEST)
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application, log_config=None, access_log=False, lifespan="off"))
    server.config.load()
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    yield listening.getsockname()[1]
    server.should_exit = True
    thread.join(timeout=10)
    connections.settings["default"]["CONN_MAX_AGE"] = kept


@pytest.fixture
def token(transactional_db: None) -> Iterator[str]:
    yield of_agent(AgentFactory.create()).token or ""
    connections.close_all()


class Server:
    """Speaks HTTP as it is, without a library that tidies paths up."""

    def __init__(self, port: int, token: str) -> None:
        self.port, self.token = port, token

    def call(self, method: str, path: str, body: Any = None, **more: str) -> tuple[int, Any, dict[str, str]]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", **more}
        data = body if body is None or not isinstance(body, dict) else json.dumps(body).encode()
        connection.request(method, "/api/v1" + path, data, headers, encode_chunked="Transfer-Encoding" in more)
        response = connection.getresponse()
        raw = response.read()
        connection.close()
        return response.status, json.loads(raw), {name.lower(): value for name, value in response.headers.items()}


@pytest.fixture
def server(port: int, token: str) -> Server:
    return Server(port, token)


@pytest.mark.parametrize(
    "key",
    ["a/b", "/a//b/", "a%2Fb", "what?x=1#y", "./../up", "..", "ü/日本/🦊", '100% + "q" \' \\', "%", "k" * 200],
)
def test_keys_go_through_the_server_as_they_are(server: Server, key: str) -> None:
    path = f"/memories/{quote(key, safe='')}"
    status, body, headers = server.call("PUT", path, {"content": "It."})
    assert (status, body["key"], headers["etag"]) == (201, key, '"1"')
    assert server.call("GET", path)[1]["key"] == key
    assert server.call("DELETE", path)[1]["deleted"] is True


def test_dots_and_slashes_stand_for_themselves_when_not_encoded(server: Server) -> None:
    assert server.call("PUT", "/memories/a/../b//c/", {"content": "It."})[1]["key"] == "a/../b//c/"


@pytest.mark.parametrize("path", ["/memories/%00", "/memories/", "/memories/%20", "/memories/a%0D%0Ab"])
def test_keys_that_cannot_be_are_refused(server: Server, path: str) -> None:
    assert server.call("PUT", path, {"content": "It."})[0] == 422


@pytest.mark.parametrize("path", ["/memories/%FF", "/memories/%ED%A0%80", "/memories?tag=%FF", "/memories/%zz"])
def test_broken_encodings_break_nothing(server: Server, path: str) -> None:
    assert server.call("GET", path)[0] in {200, 404, 422}


def test_a4_a_body_without_a_length_is_bounded_too(server: Server) -> None:
    def chunks(count: int) -> Iterator[bytes]:
        yield b'{"content": "'
        yield from (b"x" * 65_536 for _ in range(count))
        yield b'"}'

    chunked = {"Transfer-Encoding": "chunked"}
    assert server.call("PUT", "/memories/k", chunks(1), **chunked)[0] == 422
    for count in (130, 160, 400):
        status, body, headers = server.call("PUT", "/memories/k", chunks(count), **chunked)
        assert status == 413
        assert body["status"] == 413
        assert headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("size", [8 * 1024 * 1024 + 1, LARGEST + 1, 40 * 1024 * 1024])
def test_a4_a_body_that_says_its_length_is_bounded(server: Server, size: int) -> None:
    status, body, _ = server.call("PUT", "/memories/k", b" " * size)
    assert (status, body["status"]) == (413, 413)


def test_of_many_writes_at_once_that_expect_the_same_one_wins(server: Server) -> None:
    def at_once(**headers: str) -> list[int]:
        with ThreadPoolExecutor(6) as pool:
            calls = [pool.submit(server.call, "PUT", "/memories/k", {"content": "It."}, **headers) for _ in range(6)]
            return sorted(call.result()[0] for call in calls)

    assert at_once(**{"If-None-Match": "*"}) == [201, 412, 412, 412, 412, 412]
    assert at_once(**{"If-Match": '"1"'}) == [200, 412, 412, 412, 412, 412]
    assert at_once() == [200] * 6
    assert server.call("GET", "/memories/k")[1]["version"] == 8


def test_errors_are_problems_here_too(server: Server) -> None:
    for path, status in {"/nothing": 404, "/memories/none": 404, "/memories?limit=0": 422}.items():
        found, body, headers = server.call("GET", path)
        assert (found, body["status"]) == (status, status)
        assert headers["content-type"] == "application/problem+json"
    assert server.call("GET", "/memories", Authorization="Bearer x")[0] == 401
    assert server.call("POST", "/memories/k", {})[0] == 405
