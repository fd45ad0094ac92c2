"""The words and colours of state, the same on every page: a label with a dot, never colour alone."""

from __future__ import annotations

from typing import Final

from django.utils.html import format_html
from django.utils.safestring import SafeString

from agentmemory.console import figures

# state: tone, and how the dot looks beside a plain one
STATES: Final[dict[str, tuple[str, str]]] = {
    "idle": ("grey", ""),
    "due": ("blue", ""),
    "running": ("blue", "pulse"),
    "backing off": ("amber", ""),
    "blocked": ("red", ""),
    "skipped": ("grey", "hollow"),
    "quarantined": ("red", "hollow"),
    "curated": ("green", ""),
    "distilled": ("violet", ""),
    "withdrawn": ("grey", "struck"),
    "held": ("amber", "hollow"),
    "deleted": ("grey", "struck"),
    "merged": ("grey", "struck"),
    "linked": ("grey", "hollow"),
    "forgotten": ("grey", "struck"),
    "in force": ("green", ""),
    "undone": ("blue", ""),
    "ended by itself": ("grey", "hollow"),
    "expired": ("amber", ""),
    "live": ("green", ""),
    "recovered": ("blue", ""),
    "waits": ("blue", ""),
    "pending": ("blue", ""),
    "promoted": ("green", ""),
    "cancelled": ("grey", "struck"),
    "applied": ("green", ""),
    "empty": ("grey", ""),
    "failed": ("red", ""),
    "failing": ("red", "hollow"),
    "delivered": ("green", ""),
    "active": ("green", ""),
    "complete": ("grey", ""),
    "paused": ("amber", ""),
    "archived": ("grey", "struck"),
    "off": ("grey", "hollow"),
    "revoked": ("grey", "struck"),
    "ready": ("green", ""),
    "late": ("amber", ""),
    "missing": ("red", "hollow"),
    "never done": ("grey", "hollow"),
    "not used": ("grey", "hollow"),
    "key missing": ("red", "hollow"),
    "key present": ("green", ""),
    "no key needed": ("grey", ""),
    "no key is sent": ("grey", "hollow"),
    "answered": ("green", ""),
    "not called": ("grey", "hollow"),
    "verified": ("green", ""),
    "not found in its message": ("amber", "hollow"),
    "taken back": ("grey", "struck"),
    "alive": ("green", ""),
    "silent": ("red", ""),
    "written": ("green", ""),
    "created": ("green", ""),
    "updated": ("violet", ""),
    "known": ("grey", ""),
    "stays": ("green", ""),
    "returns": ("blue", ""),
    "refused": ("amber", ""),
}


def label(state: str, text: str = "") -> SafeString:
    """The label of a state, with other words in it where the page has better ones."""
    words = state.replace("_", " ")
    tone, look = STATES.get(words, ("grey", ""))
    return format_html(
        '<span class="am-label am-{} {}"><span class="am-dot" aria-hidden="true"></span>{}</span>',
        tone,
        f"am-{look}" if look else "",
        text or words,
    )


def with_line(state: str, line: str) -> SafeString:
    """The label of a state and the one line under it."""
    if not line:
        return label(state)
    return format_html('<div class="am-stack">{}<span class="am-line">{}</span></div>', label(state), line)


def lines(first: str, second: str) -> SafeString:
    """A text, and a smaller one under it."""
    return format_html('{}<span class="am-first">{}</span>', first, second)


def chips(words: list[str], *, most: int = 6) -> SafeString | str:
    """Words such as tags, side by side; what is over `most` becomes a number."""
    if not words:
        return figures.NONE
    shown = [format_html('<span class="am-chip">{}</span>', word) for word in words[:most]]
    if len(words) > most:
        shown.append(format_html('<span class="am-line">+{}</span>', len(words) - most))
    return format_html('<span class="am-chips">{}</span>', SafeString("".join(shown)))
