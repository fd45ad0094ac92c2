"""What is said in one session of Codex, put together from the records that tell of it, each in its own way."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from agentmemory.importers import assembly, base, bounds, ids, lines, openai

_SPEAKERS = {"user": "user", "assistant": "assistant", "developer": "system", "system": "system"}
_CITATION = "<oai-mem-citation>"
_PICTURE = re.compile(r"</?image\b[^<>]*>")


@dataclass(frozen=True, kw_only=True)
class Line:
    """One record: what it holds, and where and when it was written."""

    number: int
    moment: datetime | None
    payload: lines.Object


class Talk:
    """What is said in one session, while its file is read."""

    def __init__(self, session: assembly.SessionDraft) -> None:
        self.session = session
        self.times: Counter[tuple[str, str, str]] = Counter()
        self.said: dict[tuple[str, str, int], assembly.Draft] = {}
        self.without_event: list[assembly.Draft] = []
        self.has_events = False
        self.answer: assembly.Draft | None = None

    def take(self, line: Line, kind: str) -> str:
        if kind == "compacted":
            return self._summary(line)
        if kind == "response_item":
            return self._item(line)
        return self._event(line) if kind == "event_msg" else ""

    def finished(self, settled_before: datetime | None) -> base.ImportedSession | base.Skipped:
        for draft in self.without_event if self.has_events else ():
            draft.subtype = draft.subtype or "injected"
        return self.session.finished(settled_before=settled_before)

    def _event(self, line: Line) -> str:
        kind, words = line.payload.get("type"), line.payload.get("message")
        if kind == "task_complete" or kind == "turn_complete":
            return self._end(line)
        if kind == "agent_message" and isinstance(words, str) and words.strip():
            self._answered(self._said(line, "event", "assistant", openai.blocks(words)))
        elif kind == "user_message" and isinstance(words, str):
            self._prompted(line, words)
        return ""

    def _prompted(self, line: Line, words: str) -> None:
        prompt = self._said(line, "event", "user", openai.blocks(words))
        prompt.grows = False
        prompt.subtype = "" if line.payload.get("kind", "plain") == "plain" else "injected"
        self.has_events = True
        self.without_event = [draft for draft in self.without_event if draft is not prompt]
        self.answer = None

    def _answered(self, answer: assembly.Draft) -> None:
        """The model has spoken: whatever was put before it without an event gets none any more."""
        self.answer = answer
        for draft in self.without_event:
            draft.grows = False

    def _end(self, line: Line) -> str:
        words = line.payload.get("last_agent_message")
        if isinstance(words, str) and words.strip():
            before = len(self.said)
            last = self._said(line, "end", "assistant", openai.blocks(words))
            if len(self.said) > before:
                self._answered(last)
        if self.answer:
            self.answer.ends_turn = True
        self.answer = None
        return ""

    def _item(self, line: Line) -> str:
        kind = line.payload.get("type")
        if kind == "message":
            return self._message(line)
        if openai.is_output(kind):
            return self._tool(line, "user", openai.output(line.payload), suffix=":output")
        return self._tool(line, "assistant", openai.call(line.payload)) if openai.is_call(kind) else ""

    def _message(self, line: Line) -> str:
        speaker = _SPEAKERS.get(str(line.payload.get("role")))
        content = [block for block in openai.blocks(line.payload.get("content")) if not _is_marker(block)]
        if speaker is None:
            return "its role is unknown"
        if not content:
            return ""
        before = len(self.said)
        draft = self._said(line, "item", speaker, content)
        if speaker == "assistant":
            self._answered(draft)
        elif speaker == "user" and len(self.said) > before:
            self.without_event.append(draft)
            draft.grows = True
            for waiting in self.without_event:
                waiting.last = line.number
        return ""

    def _said(self, line: Line, source: str, speaker: str, content: list[object]) -> assembly.Draft:
        """The message of these words, made new where no record of another source has told of it yet."""
        words = _words(content)
        self.times[source, speaker, words] += 1
        nth = self.times[source, speaker, words]
        if (speaker, words, nth) not in self.said:
            draft = _draft(line, uid=ids.made("said", speaker, words, nth), speaker=speaker, content=content)
            self.said[speaker, words, nth] = draft
            self.session.add(draft)
        return self.said[speaker, words, nth]

    def _tool(self, line: Line, speaker: str, block: openai.Object, *, suffix: str = "") -> str:
        own = ids.uid(line.payload.get("call_id")) or ids.uid(line.payload.get("id"))
        uid = (own or ids.made("item", str(line.moment), bounds.content([block]))) + suffix
        draft = _draft(line, uid=uid, speaker=speaker, content=[block])
        draft.subtype = "tool_result" if suffix else ""
        return self.session.add(draft)

    def _summary(self, line: Line) -> str:
        words = line.payload.get("message")
        if isinstance(words, str) and words.strip():
            uid = ids.made("compacted", str(line.moment), words)
            draft = _draft(line, uid=uid, speaker="user", content=openai.blocks(words))
            draft.subtype = "compact_summary"
            return self.session.add(draft)
        return ""


def _draft(line: Line, *, uid: str, speaker: str, content: list[object]) -> assembly.Draft:
    return assembly.Draft(
        uid=uid,
        type=speaker,
        content=bounds.content(content),
        occurred_at=line.moment,
        first=line.number,
        last=line.number,
    )


def _words(content: list[object]) -> str:
    texts = (block.get("text") for block in content if isinstance(block, dict) and block.get("type") == "text")
    # What an answer cites stands after it in the item, and not in the event.
    return "".join(str(words) for words in texts).partition(_CITATION)[0].strip()


def _is_marker(block: object) -> bool:
    """Whether the client put it around a picture."""
    return isinstance(block, dict) and block.get("type") == "text" and bool(_PICTURE.fullmatch(str(block.get("text"))))
