"""What the pages of execution share: whose session it is, and what waits in it and why."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agentmemory.console import permissions
from agentmemory.models import Session
from sessions_exec.models import Execution, Input
from sessions_exec.services import inbox, standing

INPUTS_SHOWN = 20
CHARS_SHOWN = 20_000
CHARS_OF_A_LINE = 120
PHASES = {
    "ready": "nothing under way",
    "safe": "all is recorded",
    "unknown": "a call was sent, and what came of it is not recorded",
}
"""What a phase says of its moment, in few words."""


def whose(session: Session, space: str) -> SafeString:
    """A session in a list, with its agent and space under it."""
    return format_html(
        '<span class="am-key">{}</span><span class="am-first">{} · {}</span>',
        session.name,
        session.agent.handle,
        space,
    )


def phase(name: str, line: str = "") -> SafeString:
    """A phase in a list, with its few words or a better line under it."""
    return format_html(
        '<div class="am-stack"><span>{}</span><span class="am-line">{}</span></div>', name, line or PHASES.get(name, "")
    )


def shown(request: HttpRequest, session: Session, execution: Execution | None, now: datetime) -> dict[str, Any]:
    """The first inputs that wait in a session, each with its reason, for a template. `more` says there are others.

    Their words are there for who may read what is private, and the look is put on record.
    """
    if not request.user.has_perm("sessions_exec.view_input"):
        return {"waiting": (), "more": False, "sees_inputs": False}
    rows = list(inbox.pending(session=session)[: INPUTS_SHOWN + 1])
    readable = permissions.reads_private(request)
    if readable and rows:
        permissions.note_look(request, session, session.space)
    return {
        "waiting": _entries(rows[:INPUTS_SHOWN], execution, now, readable=readable),
        "more": len(rows) > INPUTS_SHOWN,
        "sees_inputs": True,
    }


def text(prompt: Any) -> str:
    """What an input says, as plain text and bounded: the page escapes it."""
    if isinstance(prompt, list):
        blocks = [block for block in prompt if isinstance(block, dict) and block.get("type") == "text"]
        if len(blocks) == len(prompt):
            prompt = "\n\n".join(str(block.get("text", "")) for block in blocks)
    words = prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False, indent=2)
    return words if len(words) <= CHARS_SHOWN else f"{words[:CHARS_SHOWN]} …"


def _entries(
    rows: Sequence[Input], execution: Execution | None, now: datetime, *, readable: bool
) -> list[dict[str, Any]]:
    return [
        {
            "row": row,
            "why": standing.why(row, execution, now, private=readable),
            "said": _first_line(text(row.prompt)) if readable and row.prompt is not None else "",
        }
        for row in rows
    ]


def _first_line(words: str) -> str:
    line = words.strip().partition("\n")[0]
    return line if len(line) <= CHARS_OF_A_LINE else f"{line[:CHARS_OF_A_LINE]} …"
