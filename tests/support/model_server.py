"""A scriptable model server that speaks the Anthropic wire on 127.0.0.1.

In a test: `with ModelServer() as server: server.script(refusal(), memories([...]))`; what is not scripted
gets `one_memory_per_user_line`. As a process: `python -m tests.support.model_server --port 99 --ledger FILE`,
then `POST /_script` with `[{"behaviour": "status", "code": 529, "headers": {"retry-after": "3"}}, …]` and
`GET /_requests`; the ledger gets one JSON line a request, whoever sent it.
"""

from __future__ import annotations

import argparse
import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

SHOWN_LINE = re.compile(r"^\[(\d+)\] (user|assistant): (.*)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """One request as it came."""

    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: Any
    at: float

    @property
    def prompt(self) -> str:
        """The text of the request's last message."""
        content = self.body["messages"][-1]["content"]
        if isinstance(content, str):
            return content
        return "\n".join(block["text"] for block in content if block.get("type") == "text")

    @property
    def shown(self) -> list[tuple[int, str, str]]:
        """(seq, role, first line of the text) of every message shown."""
        return [(int(seq), role, text) for seq, role, text in SHOWN_LINE.findall(self.prompt)]


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What the server does with one request: waits `delay` seconds, then sends, drips or drops."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    delay: float = 0.0
    drip_seconds: float = 0.0
    """Seconds between two bytes of the body; 0 sends it at once."""
    drop: bool = False
    gate: threading.Event | None = None
    """Only `gate_at` bytes of the body are sent before it is set."""
    gate_at: int = 0


Behaviour = Callable[[Recorded], Reply]


def message(
    text: str,
    *,
    stop_reason: str = "end_turn",
    input_tokens: int = 100,
    output_tokens: int = 20,
    **extra: Any,
) -> Reply:
    """A whole message with one text block (none when `text` is empty)."""
    document = {
        "id": "msg_test",
        "type": "message",
        "role": "assistant",
        "model": "test-model",
        "content": [{"type": "text", "text": text}] if text else [],
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": {"input_tokens": input_tokens, "output_tokens": output_tokens},
        **extra,
    }
    return Reply(body=json.dumps(document).encode())


def raw_text(text: str) -> Behaviour:
    return lambda _request: message(text)


def streamed(
    *texts: str,
    calls: Sequence[Mapping[str, Any]] = (),
    stop_reason: str = "",
    input_tokens: int = 100,
    output_tokens: int = 20,
    end: bool = True,
    gate: threading.Event | None = None,
) -> Behaviour:
    """An answer as a stream: a text block in pieces, then tool calls (`id`, `name`, `input`).

    Without `end` it breaks off before its end is told. With a `gate` it stands still there until that is set.
    """
    parts: list[dict[str, Any]] = []
    if texts:
        parts += _streamed_block(0, {"type": "text", "text": ""}, [{"type": "text_delta", "text": t} for t in texts])
    for index, call in enumerate(calls, start=len(parts) and 1):
        given = json.dumps(call["input"])
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in (given[:5], given[5:])]
        block = {"type": "tool_use", "id": call["id"], "name": call["name"], "input": {}}
        parts += _streamed_block(index, block, deltas)
    usage = {"input_tokens": input_tokens, "output_tokens": 1}
    begun = {"id": "msg_test", "type": "message", "role": "assistant", "model": "test-model", "content": []}
    first: dict[str, Any] = {
        "type": "message_start",
        "message": {**begun, "stop_reason": None, "stop_sequence": None, "usage": usage},
    }
    reason = stop_reason or ("tool_use" if calls else "end_turn")
    told = {"stop_reason": reason, "stop_sequence": None}
    last: list[dict[str, Any]] = [
        {"type": "message_delta", "delta": told, "usage": {"output_tokens": output_tokens}},
        {"type": "message_stop"},
    ]
    before = _events([first, *parts])
    body = before + (_events(last) if end else b"")
    headers = {"Content-Type": "text/event-stream"}
    return lambda _request: Reply(headers=headers, body=body, gate=gate, gate_at=len(before))


def error_in_stream(error_type: str = "overloaded_error", words: str = "scripted") -> Behaviour:
    """A stream whose status is good, and whose first event is an error."""
    body = _events([{"type": "error", "error": {"type": error_type, "message": words}}])
    return lambda _request: Reply(headers={"Content-Type": "text/event-stream"}, body=body)


def _streamed_block(index: int, block: Mapping[str, Any], deltas: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    begun = {"type": "content_block_start", "index": index, "content_block": dict(block)}
    pieces = [{"type": "content_block_delta", "index": index, "delta": dict(delta)} for delta in deltas]
    return [begun, *pieces, {"type": "content_block_stop", "index": index}]


def _events(events: Sequence[Mapping[str, Any]]) -> bytes:
    return b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)


def memories(items: Sequence[Mapping[str, Any]]) -> Behaviour:
    return raw_text(json.dumps({"memories": list(items)}))


def prose_around(items: Sequence[Mapping[str, Any]]) -> Behaviour:
    answer = json.dumps({"memories": list(items)})
    return raw_text(f"Here is what I found {{as asked}}:\n```json\n{answer}\n```\nThat is all {{really}}.")


def status(
    code: int,
    *,
    headers: Mapping[str, str] | None = None,
    error_type: str = "api_error",
    words: str = "scripted",
) -> Behaviour:
    body = json.dumps({"type": "error", "error": {"type": error_type, "message": words}}).encode()
    return lambda _request: Reply(status=code, headers=headers or {}, body=body)


def malformed_body() -> Behaviour:
    return lambda _request: Reply(body=b'{"id": "msg_test", "type": "mess')


def refusal() -> Behaviour:
    return lambda _request: message("", stop_reason="refusal")


def cut(text: str = '{"memories": [{"key": "a') -> Behaviour:
    return lambda _request: message(text, stop_reason="max_tokens")


def empty() -> Behaviour:
    return lambda _request: message("")


def hang(seconds: float) -> Behaviour:
    return lambda request: Reply(**{**vars(one_memory_per_user_line(request)), "delay": seconds})


def drip(seconds: float) -> Behaviour:
    return lambda request: Reply(**{**vars(one_memory_per_user_line(request)), "drip_seconds": seconds})


def drop() -> Behaviour:
    return lambda _request: Reply(drop=True)


def error_after_text(text: str = '{"memories": []}') -> Behaviour:
    error = {"type": "api_error", "message": "failed after the text"}
    return lambda _request: message(text, error=error)


def one_memory_per_user_line(request: Recorded) -> Reply:
    """A sensible answer: each user message shown becomes one memory that cites and quotes it.

    Who asks for a stream runs a session, and gets a word.
    """
    if request.body.get("stream"):
        return streamed("Under", "stood.")(request)
    lines = [(seq, text) for seq, role, text in request.shown if role == "user"]
    found = [
        {
            "key": _key(seq, text),
            "content": text[:2_000] or "-",
            "tags": [],
            "sources": [seq],
            "quote": text[:60],
        }
        for seq, text in lines[:12]
    ]
    return message(json.dumps({"memories": found}))


def _key(seq: int, text: str) -> str:
    return "-".join(re.findall(r"\w+", text.lower())[:6])[:100] or f"message-{seq}"


BEHAVIOURS: dict[str, Callable[..., Behaviour]] = {
    "raw_text": raw_text,
    "memories": memories,
    "prose_around": prose_around,
    "status": status,
    "malformed_body": malformed_body,
    "refusal": refusal,
    "cut": cut,
    "empty": empty,
    "hang": hang,
    "drip": drip,
    "drop": drop,
    "error_after_text": error_after_text,
    "streamed": lambda texts=(), calls=(), **more: streamed(*texts, calls=calls, **more),
    "error_in_stream": error_in_stream,
    "default": lambda: one_memory_per_user_line,
}


class ModelServer:
    """The server, in a thread of this process; `address` is the base address to give a client."""

    def __init__(
        self, *, port: int = 0, ledger: Path | None = None, default: Behaviour = one_memory_per_user_line
    ) -> None:
        self.requests: list[Recorded] = []
        self.default = default
        self._script: deque[Behaviour] = deque()
        self._ledger = ledger
        self._lock = threading.Lock()
        self.stopping = threading.Event()
        self._http = _Listener(("127.0.0.1", port), _Handler)
        self._http.owner = self
        self.port = int(self._http.server_address[1])
        self.address = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    def script(self, *behaviours: Behaviour) -> None:
        """Queue behaviours, one a request; then the default again."""
        with self._lock:
            self._script.extend(behaviours)

    def next_reply(self, request: Recorded) -> Reply:
        with self._lock:
            self.requests.append(request)
            if self._ledger is not None:
                with self._ledger.open("a") as ledger:
                    ledger.write(json.dumps(vars(request)) + "\n")
            behaviour = self._script.popleft() if self._script else self.default
        return behaviour(request)

    def start(self) -> ModelServer:
        self._thread.start()
        return self

    def stop(self) -> None:
        self.stopping.set()
        self._http.shutdown()
        self._http.server_close()

    def __enter__(self) -> ModelServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    owner: ModelServer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Listener

    def do_GET(self) -> None:
        owner = self.server.owner
        self._send(Reply(body=json.dumps([vars(request) for request in owner.requests]).encode()))

    def do_POST(self) -> None:
        owner = self.server.owner
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", "0"))) or b"null")
        if self.path == "/_script":
            owner.script(*[_scripted(entry) for entry in body])
            self._send(Reply(body=b"{}"))
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Recorded(path=self.path, headers=headers, body=body, at=time.time())
        self._send(owner.next_reply(request))

    def _send(self, reply: Reply) -> None:
        try:
            self._write(reply)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _write(self, reply: Reply) -> None:
        stopping = self.server.owner.stopping
        if reply.drop or (reply.delay and stopping.wait(reply.delay)):
            self.close_connection = True
            return
        self.send_response(reply.status)
        for name, value in {"Content-Type": "application/json", **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if reply.gate is not None:
            self.wfile.write(reply.body[: reply.gate_at])
            self.wfile.flush()
            while not reply.gate.wait(0.05):
                if stopping.is_set():
                    return
            self.wfile.write(reply.body[reply.gate_at :])
            return
        step = 1 if reply.drip_seconds else max(1, len(reply.body))
        for at in range(0, len(reply.body), step):
            self.wfile.write(reply.body[at : at + step])
            self.wfile.flush()
            if reply.drip_seconds and stopping.wait(reply.drip_seconds):
                return

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 the name is the base class's
        """Silent: the ledger is the log."""


def _scripted(entry: Mapping[str, Any]) -> Behaviour:
    arguments = {name: value for name, value in entry.items() if name != "behaviour"}
    return BEHAVIOURS[entry["behaviour"]](**arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ledger", type=Path)
    options = parser.parse_args()
    with ModelServer(port=options.port, ledger=options.ledger) as server:
        print(server.address, flush=True)  # noqa: T201 the caller reads where it listens
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
