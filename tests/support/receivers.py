"""A server that takes webhooks: it keeps what comes, and answers as it is told."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Got:
    """One call as it came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def event(self) -> Any:
        return json.loads(self.body)

    def signed_by(self, secret: str) -> bool:
        """As a receiver does it, after the Standard Webhooks specification, with nothing of ours."""
        key = base64.b64decode(secret.removeprefix("whsec_"))
        content = f"{self.id}.{self.headers['webhook-timestamp']}.{self.body.decode()}"
        expected = base64.b64encode(hmac.new(key, content.encode(), hashlib.sha256).digest()).decode()
        return f"v1,{expected}" in self.headers["webhook-signature"].split(" ")


@dataclass(kw_only=True)
class Receiver:
    """`answers` are used up one by one; after the last it says 204. `silent` is held until it is released."""

    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    got: list[Got] = field(default_factory=list)
    silent: threading.Event | None = None
    url: str = ""


@contextmanager
def receiver() -> Iterator[Receiver]:
    taken = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            taken.got.append(Got(path=self.path, headers=headers, body=body))
            if taken.silent is not None:
                taken.silent.wait(20)
            status, more = taken.answers.pop(0) if taken.answers else (204, {})
            self.send_response(status)
            for name, value in more.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    taken.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    try:
        yield taken
    finally:
        if taken.silent is not None:
            taken.silent.set()
        server.shutdown()
        server.server_close()
