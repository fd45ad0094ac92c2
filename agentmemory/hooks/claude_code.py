#!/usr/bin/env python3
"""Hooks of Claude Code: what is remembered goes in when a session starts, what was said comes back when a turn ends.

One file, Python 3.8 or later and nothing else. It reads `AGENTMEMORY_URL` and `AGENTMEMORY_TOKEN`, hears of the event
on standard input, and never holds the agent up: it ends by itself after a few seconds, always with status 0. What
went wrong is told on standard error and in `hook.log` below `~/.cache/agent-memory` (`AGENTMEMORY_HOOK_DIR`), where it
keeps how far each session was sent. Losing that costs time alone: a message is known by its uid.

What is a message, and its uid, is as in the importer of session files: importing them later adds what was missed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

LIMITS = {"SessionStart": 5.0, "Stop": 8.0, "SessionEnd": 8.0}
"""The events that something is done for, and the seconds after which it ends, whatever it is doing."""

SETTLING = 1.5
"""Seconds for which the end of a turn is waited for: the client writes its file a little after it tells of it."""

BATCH = (200, 4_000_000)
"""Messages of one call, and characters of them."""

LONGEST = {"text": 200_000, "other": 20_000}
KEPT_ANSWERS = 50
LARGEST_LOG = 256 * 1024
OWN_PROMPT = "<agent-memory-extraction/>"

_SESSION = re.compile(r"[A-Za-z0-9._:@-]{1,200}\Z")
_UID = re.compile(r"[!-~]{1,180}\Z")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,12})?(Z|[+-]\d\d:\d\d)\Z")

if TYPE_CHECKING:
    from collections.abc import Iterator

    Record = dict[str, Any]


class Direct(HTTPRedirectHandler):
    """Follows no redirect: the token is for one server."""

    def redirect_request(self, *args: Any) -> None:
        return None


class Server:
    """The JSON views, with one token."""

    def __init__(self, url: str, token: str) -> None:
        self.base = url.rstrip("/") + "/api/v1"
        self.token = token
        self.opener = build_opener(ProxyHandler({}), Direct())

    def call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body, allow_nan=False).encode()
        headers = {"Authorization": "Bearer " + self.token, "Content-Type": "application/json"}
        request = Request(self.base + path, data=data, headers=headers, method=method)  # noqa: S310 - of the settings
        with self.opener.open(request, timeout=4) as answer:
            return json.loads(answer.read())


def main() -> None:
    """Do what the event on standard input asks for."""
    event = json.loads(sys.stdin.read() or "{}")
    name = event.get("hook_event_name")
    if name not in LIMITS:
        return
    clock = threading.Timer(LIMITS[name], _give_up, [name])
    clock.daemon = True
    clock.start()
    token = os.environ.get("AGENTMEMORY_TOKEN", "").strip()
    if not token:
        _log("There is no AGENTMEMORY_TOKEN: nothing is remembered.")
        return
    server = Server(os.environ.get("AGENTMEMORY_URL", "").strip() or "http://127.0.0.1:8000", token)
    if name == "SessionStart":
        _recall(server, event)
    else:
        push(server, event)


def _recall(server: Server, event: Record) -> None:
    """Print the block of memories, for the client to put into the session's context."""
    about = Path(str(event.get("cwd") or "")).name
    block = server.call("GET", "/context?" + urlencode({"q": about} if about else {})).get("text")
    if block:
        answer = {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": block}}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def push(server: Server, event: Record) -> None:
    """Send what the session's file holds beyond what was sent. It is sent in order, and what arrived is noted."""
    session, path = str(event.get("session_id") or ""), Path(str(event.get("transcript_path") or ""))
    if not _SESSION.match(session) or not path.is_file():
        return
    if event["hook_event_name"] == "Stop":
        _settle(path, str(event.get("last_assistant_message") or ""))
    state = State(session, path)
    found, end = _found(session, path, state.offset, state.answers)
    if not found:
        return
    messages = [one.message for one in found]
    if state.offset == 0:
        if any(OWN_PROMPT in str(message["content"]) for message in messages[:3]):
            return
        about = {"format": "claude_code", "cwd": str(event.get("cwd") or "")[:500]}
        server.call("PUT", "/sessions/" + quote(session), {"title": _title(messages), "metadata": about})
    address = "/sessions/" + quote(session) + "/messages"
    for batch in _batches(found):
        _send(server, address, [one.message for one in batch])
        state.sent(batch, rest=found[found.index(batch[-1]) + 1 :], end=end)
    # Without a word of the agent there is no turn yet that could have ended.
    if event["hook_event_name"] == "SessionEnd" or any(message["type"] == "assistant" for message in messages):
        _send(server, address, [{"uid": "turn-" + messages[-1]["uid"], "type": "result", "content": ""}])


def _settle(path: Path, said: str) -> None:
    """Wait until the answer that ended the turn stands in the file; where it is not known, until the file rests."""
    wanted = json.dumps(said, ensure_ascii=False)[1:-1].encode() if said else b""
    ends, size = time.monotonic() + SETTLING, -1
    while time.monotonic() < ends:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 1_000_000))
            tail = file.read()
        if (wanted and wanted in tail) or (not wanted and len(tail) == size):
            return
        size = len(tail)
        time.sleep(0.2)


class Found:
    """A message that is new: the uid that its answer has in the file, and the bytes between which its lines stand."""

    def __init__(self, message: Record, own: str, first: int) -> None:
        self.message, self.own = message, own
        self.first = self.last = first


class State:
    """How far a session's file was sent: bytes of it, and how many blocks its last answers had."""

    def __init__(self, session: str, path: Path) -> None:
        name = hashlib.sha256((session + "\n" + str(path)).encode()).hexdigest()[:32]
        self.file = _folder() / (name + ".json")
        self.offset: int = 0
        self.answers: dict[str, int] = {}
        try:
            kept = json.loads(self.file.read_text())
            offset, answers = int(kept["offset"]), dict(kept["answers"])
        except (OSError, ValueError, KeyError, TypeError):
            return
        # A file that has become shorter is another one: what is known of it will be told by the server.
        if offset <= path.stat().st_size:
            self.offset, self.answers = offset, answers

    def sent(self, batch: list[Found], *, rest: list[Found], end: int) -> None:
        """Note what arrived. With lines of what is sent among those of what is not, that waits for the next batch."""
        for one in batch:
            if one.message["type"] == "assistant":
                self.answers[one.own] = self.answers.get(one.own, 0) + len(one.message["content"])
        offset = min((one.first for one in rest), default=end)
        if any(one.last >= offset for one in batch):
            return
        recent = dict(list(self.answers.items())[-KEPT_ANSWERS:])
        written = self.file.with_suffix(f".{os.getpid()}")
        written.write_text(json.dumps({"offset": offset, "answers": recent}))
        os.replace(str(written), str(self.file))


def _found(session: str, path: Path, offset: int, answers: dict[str, int]) -> tuple[list[Found], int]:
    """The messages from `offset` on, and where the last whole line ends."""
    found: dict[str, Found] = {}
    copies = set()
    for line in _lines(path, offset):
        at, offset = offset, offset + len(line)
        message = _message(session, line)
        if message is None:
            continue
        own, blocks = message["uid"], message["content"]
        if message["type"] == "assistant":
            # What grew after it was sent goes on in a message of its own.
            uid = f"{own}+{answers[own]}" if own in answers else own
            one = found.setdefault(uid, Found({**message, "uid": uid, "content": []}, own, at))
            one.last = at
            for block in blocks:
                if block not in one.message["content"]:
                    one.message["content"].append(block)
            continue
        copy = (message.get("occurred_at"), json.dumps(blocks))
        if own not in found and not (copy[0] and copy in copies):
            found[own] = Found(message, own, at)
            copies.add(copy)
    return list(found.values()), offset


def _lines(path: Path, offset: int) -> Iterator[bytes]:
    """The lines from `offset` on that are written to their end."""
    with path.open("rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                return
            yield line


def _message(session: str, line: bytes) -> Record | None:
    """The message on a line of this session, as the JSON views take it; nothing for any other line."""
    try:
        message = _read(session, json.loads(line.decode("utf-8", "replace")))
        json.dumps(message, allow_nan=False)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    return message


def _read(session: str, record: Record) -> Record | None:
    kind, inner = record.get("type"), record.get("message")
    if not isinstance(inner, dict):
        return None
    content = inner.get("content")
    if kind not in ("user", "assistant") or record.get("sessionId") != session or not content:
        return None
    if not isinstance(content, (str, list)):
        return None
    grows = kind == "assistant"
    if grows and isinstance(content, str):
        content = [{"type": "text", "text": content}]
    uid = (inner.get("id") if grows else None) or record.get("uuid")
    if not isinstance(uid, str) or not _UID.match(uid):
        return None
    message = {"uid": uid, "type": kind, "content": _bounded(content), "subtype": _subtype(record, inner, content)}
    if record.get("isApiErrorMessage") is True:
        message["is_error"] = True
    if record.get("isSidechain") is True:
        message["parent_tool_use_id"] = str(record.get("agentId") or "sidechain")[:200]
    if _TIME.match(str(record.get("timestamp"))):
        message["occurred_at"] = record["timestamp"]
    return message


def _subtype(record: Record, message: Record, content: Any) -> str:
    """What a person did not type, by name; nothing for what was said."""
    if record.get("isApiErrorMessage") is True:
        return "api_error"
    if message.get("model") == "<synthetic>" or record.get("isSynthetic") is True:
        return "synthetic"
    if record.get("isCompactSummary") is True:
        return "compact_summary"
    results = isinstance(content, list) and all(_type(block) == "tool_result" for block in content)
    if "toolUseResult" in record or results:
        return "tool_result"
    if record.get("isMeta") is True or record.get("isVisibleInTranscriptOnly") is True:
        return "meta"
    origin = record.get("origin")
    return "notification" if isinstance(origin, dict) and origin.get("kind", "human") != "human" else ""


def _type(block: Any) -> Any:
    return block.get("type") if isinstance(block, dict) else None


def _bounded(value: Any, limit: str = "text") -> Any:
    """`value` with its longest strings cut, as the importer cuts them."""
    if isinstance(value, str):
        most = LONGEST[limit]
        return value if len(value) <= most else f"{value[:most]}…[{len(value) - most} more]"
    if isinstance(value, list):
        return [_bounded(item, limit) for item in value]
    if not isinstance(value, dict):
        return value
    is_text = limit == "text" and value.get("type") == "text"
    return {key: _bounded(item, "text" if is_text and key == "text" else "other") for key, item in value.items()}


def _title(found: list[Record]) -> str:
    """The first line of the first prompt."""
    for message in found:
        content = message["content"]
        texts = [content] if isinstance(content, str) else [str(b.get("text")) for b in content if _type(b) == "text"]
        if message["type"] == "user" and not message["subtype"] and texts and not texts[0].lstrip().startswith("<"):
            return (texts[0].strip().splitlines() or [""])[0][:200]
    return ""


def _batches(found: list[Found]) -> Iterator[list[Found]]:
    batch: list[Found] = []
    size = 0
    for one in found:
        batch.append(one)
        size += len(json.dumps(one.message))
        if len(batch) == BATCH[0] or size > BATCH[1]:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _send(server: Server, path: str, batch: list[Record]) -> None:
    """Send messages; where one of them is refused the others are sent without it."""
    try:
        server.call("POST", path, {"messages": batch})
    except HTTPError as error:
        problem = error.read().decode("utf-8", "replace")
        if error.code not in (413, 422) and "uid-conflict" not in problem:
            raise
        if len(batch) == 1:
            _log(f"The message {batch[0]['uid']} was refused ({error.code}).")
            return
        half = len(batch) // 2
        _send(server, path, batch[:half])
        _send(server, path, batch[half:])


def _folder() -> Path:
    folder = Path(os.environ.get("AGENTMEMORY_HOOK_DIR") or Path.home() / ".cache" / "agent-memory")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _log(text: str) -> None:
    """Note what went wrong. Never what was said, and never the token."""
    line = time.strftime("%Y-%m-%dT%H:%M:%S ") + text + "\n"
    sys.stderr.write("agent-memory: " + text + "\n")
    try:
        log = _folder() / "hook.log"
        if log.exists() and log.stat().st_size > LARGEST_LOG:
            os.replace(str(log), str(log.with_suffix(".log.1")))
        with log.open("a") as file:
            file.write(line)
    except OSError:
        return


def _give_up(name: str) -> None:
    _log(f"{name} took too long. The rest will be sent next time.")
    os._exit(0)


if __name__ == "__main__":
    try:
        main()
    except HTTPError as refused:
        _log(f"The server answered {refused.code}.")
    except Exception as failed:  # noqa: BLE001 - whatever it is, the agent goes on
        _log(f"{type(failed).__name__}: {failed}")
    sys.exit(0)
