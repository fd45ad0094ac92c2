"""Links and quotations in templates."""

from __future__ import annotations

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agentmemory.console import links
from agentmemory.models import Memory
from agentmemory.services import naming

register = template.Library()
CHARS_QUOTED = 4_000

register.simple_tag(links.message, name="message_url")
register.simple_tag(links.memory, name="memory_url")
register.simple_tag(links.session, name="session_url")
register.simple_tag(links.a_pass, name="pass_url")
register.simple_tag(links.a_cursor, name="cursor_url")
register.simple_tag(links.change, name="page_url")


@register.simple_tag
def waits_for(line: str, private: bool) -> str:
    """Why something waits, as who looks may read it."""
    return naming.wait(line, private=private)


@register.simple_tag
def memory_name(memory: Memory, private: bool) -> str:
    """What a memory is called to one who may read what is private, or may not."""
    return naming.memory(memory, private=private)


@register.simple_tag
def marked(text: str, quote: str) -> SafeString:
    """A text with the quoted words marked where they stand, cut around them when it is long."""
    at = text.find(quote) if quote else -1
    if at < 0:
        return format_html("{}", _cut(text))
    before, after = text[:at], text[at + len(quote) :]
    if len(text) > CHARS_QUOTED:
        before = ("… " if len(before) > CHARS_QUOTED // 2 else "") + before[-CHARS_QUOTED // 2 :]
        after = after[: CHARS_QUOTED // 2] + (" …" if len(after) > CHARS_QUOTED // 2 else "")
    return format_html("{}<mark>{}</mark>{}", before, quote, after)


def _cut(text: str) -> str:
    return text if len(text) <= CHARS_QUOTED else f"{text[:CHARS_QUOTED]} …"
