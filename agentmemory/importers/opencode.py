"""OpenCode's exports: what `opencode export SESSION` writes, one session a file.

What is made of them, where more than one way was open:

- A message is one message, its uid its id, its parts its blocks. Text that the client put in (a file's content, a
  reminder) is kept under a type that is no text. Steps, snapshots and patches are left out.
- An answer that is not marked as completed may still grow.
- An answer that failed or was broken off is an error; what it said until then was said.
- A session that an agent began is a session of its own, and names its parent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from agentmemory.importers import assembly, base, bounds, documents, ids, openai, skips

_LEFT_OUT = ("step-start", "step-finish", "snapshot", "patch")
_UNNAMED = re.compile(r"(New|Child) session - ")

Object = dict[str, object]


class OpenCode:
    """See the module."""

    name = "opencode"

    def recognises(self, path: Path) -> bool:
        return _is_ours(documents.peek(path))

    def read(self, path: Path, *, settled_before: datetime | None = None) -> base.Transcript:
        try:
            document = documents.read(path)
        except OSError as error:
            raise base.UnreadableTranscript(f"The file does not open: {error.strerror or error}.") from error
        if not isinstance(document, dict) or not _is_ours(document):
            raise base.UnreadableTranscript("The file is no export of OpenCode.")
        return _transcript(document, settled_before)


def _is_ours(document: object) -> bool:
    if not isinstance(document, dict) or not isinstance(document.get("messages"), list):
        return False
    return bool(ids.session(_within(document, "info").get("id"))) and all(
        isinstance(entry, dict) and "info" in entry and "parts" in entry for entry in document["messages"][:1]
    )


def _transcript(document: Object, settled_before: datetime | None) -> base.Transcript:
    session = _session(_within(document, "info"))
    skipped = skips.Skips()
    entries = document["messages"]
    for number, entry in enumerate(entries if isinstance(entries, list) else (), start=1):
        if reason := _take(session, number, entry):
            skipped.add(base.Skipped(line=0, reason=f"message {number}: {reason}"))
    finished = session.finished(settled_before=settled_before)
    if isinstance(finished, base.Skipped):
        skipped.add(base.Skipped(line=0, reason=finished.reason))
        return base.Transcript(sessions=(), skipped=tuple(skipped))
    return base.Transcript(sessions=(finished,) if finished.messages else (), skipped=tuple(skipped))


def _session(info: Object) -> assembly.SessionDraft:
    metadata = {"format": OpenCode.name}
    for theirs, ours in (("directory", "cwd"), ("version", "version"), ("parentID", "parent_session")):
        if fact := bounds.line(info.get(theirs), limit=500):
            metadata[ours] = fact
    session = assembly.SessionDraft(ids.session(info.get("id")), metadata=metadata)
    title = bounds.line(info.get("title"), limit=assembly.MAX_TITLE)
    session.title = "" if _UNNAMED.match(title) else title
    session.saw(bounds.epoch(_within(info, "time").get("updated")))
    return session


def _take(session: assembly.SessionDraft, number: int, entry: object) -> str:
    """Use one message. Gives the reason when it could not be used."""
    info = _within(entry, "info") if isinstance(entry, dict) else {}
    parts = entry.get("parts") if isinstance(entry, dict) else None
    speaker, uid = info.get("role"), ids.uid(info.get("id"))
    if speaker not in ("user", "assistant"):
        return "its role is unknown"
    if not uid or not isinstance(parts, list):
        return "it has no usable id" if not uid else "it has no parts"
    times = _within(info, "time")
    for moment in times.values():
        session.saw(bounds.epoch(moment))
    content = bounds.content([block for part in parts for block in _blocks(part)])
    return "" if not content else session.add(_draft(info, str(speaker), uid, number, content))


def _draft(info: Object, speaker: str, uid: str, number: int, content: base.Content) -> assembly.Draft:
    times = _within(info, "time")
    return assembly.Draft(
        uid=uid,
        type=speaker,
        content=content,
        occurred_at=bounds.epoch(times.get("created")),
        subtype="compact_summary" if info.get("summary") is True else "",
        is_error=bool(info.get("error")),
        first=number,
        last=number,
        grows=speaker == "assistant" and times.get("completed") is None,
    )


def _blocks(part: object) -> Iterator[object]:
    if not isinstance(part, dict) or part.get("type") in _LEFT_OUT:
        return
    kind = part.get("type")
    if kind == "text" and (part.get("synthetic") is True or part.get("ignored") is True):
        yield {"type": "synthetic_text", "text": part.get("text")}
    elif kind == "text":
        yield {"type": "text", "text": part.get("text")}
    elif kind == "reasoning":
        yield {"type": "thinking", "thinking": part.get("text")}
    elif kind == "tool":
        yield from _tool(part)
    else:
        yield {key: value for key, value in part.items() if key not in ("sessionID", "messageID")}


def _tool(part: Object) -> Iterator[object]:
    state = _within(part, "state")
    yield openai.tool_use(call_id=part.get("callID"), name=part.get("tool"), arguments=state.get("input"))
    if state.get("status") in ("completed", "error"):
        result = openai.tool_result(call_id=part.get("callID"), output=state.get("output", state.get("error")))
        yield {**result, "is_error": state.get("status") == "error"}


def _within(value: Object, key: str) -> Object:
    inner = value.get(key)
    return inner if isinstance(inner, dict) else {}
