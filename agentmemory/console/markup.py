"""Words that were looked for, marked in the text that has them."""

from __future__ import annotations

import re

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString


def bold(text: str, marks: re.Pattern[str] | None) -> SafeString:
    """The text as escaped HTML, with a mark around each place that matches."""
    if marks is None:
        return format_html("{}", text)
    pieces, at = [], 0
    for found in marks.finditer(text):
        if found.group():
            pieces.append((text[at : found.start()], found.group()))
            at = found.end()
    return format_html("{}{}", format_html_join("", "{}<b>{}</b>", pieces), text[at:])
