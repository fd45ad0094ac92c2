"""What a task does, in words with a link to what it is about: each app says it of its own."""

from __future__ import annotations

from collections.abc import Callable

from django.utils.html import format_html
from django.utils.safestring import SafeString

from agentmemory.console import links
from sessions_exec.services import delivering

Say = Callable[[str, str], SafeString | str | None]


def _of_webhooks(function: str, argument: str) -> SafeString | None:
    return (
        links.anchor(links.listing("sessions_exec", "delivery"), "calls webhooks")
        if function == delivering.TASK
        else None
    )


says: list[Say] = [_of_webhooks]
"""Each is asked with a function by its dotted name, and its argument."""


def said(function: str, argument: str) -> SafeString:
    """The words of whoever knows the task, and its name."""
    words = next((words for words in (say(function, argument) for say in says) if words), "")
    name = format_html("<code>{}</code> {}", function, argument)
    return format_html('{}<span class="am-first">{}</span>', words, name) if words else name
