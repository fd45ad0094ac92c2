"""The console's words in templates: labels, times, numbers."""

from __future__ import annotations

import json

from django import template
from django.template import Context
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agentmemory.console import figures, labels, markup

# A text that is longer is folded behind so much of it; a little more than that is not worth a click.
FOLDED_BEHIND = 1_500
WORTH_FOLDING = 500

register = template.Library()

register.filter("when", figures.when)
register.filter("number", figures.number)
register.filter("money", figures.money)
register.filter("duration", figures.duration)
register.filter("chips", labels.chips)
register.filter("bold", markup.bold)
register.simple_tag(labels.label, name="label")


@register.simple_tag(takes_context=True)
def where(context: Context) -> list[dict[str, str]]:
    """Where a page is: the group and the item of the sidebar that lead to it, and what it is called.

    A group that is called as its item is left out.
    """
    called = str(context.get("original") or context.get("title") or "")
    for group in context.get("sidebar_navigation") or ():
        for item in group["items"]:
            if item.get("active") is True and str(item.get("title")) != "Start":
                over, name, link = str(group["title"]), str(item["title"]), str(item["link"])
                above = [{"title": over}] if over != name else []
                if context["request"].path == link:
                    return [*above, {"title": name}]
                return [*above, {"title": name, "link": link}, {"title": called}]
    return [{"title": called}]


@register.filter
def folded(text: str) -> SafeString:
    """A text, and behind a fold what is long of it."""
    if len(text) <= FOLDED_BEHIND + WORTH_FOLDING:
        return format_html("{}", text)
    at = text.rfind(" ", FOLDED_BEHIND - WORTH_FOLDING, FOLDED_BEHIND) + 1 or FOLDED_BEHIND
    return format_html(
        '{}<details class="am-rest"><summary>… {} more characters</summary>{}</details>',
        text[:at],
        figures.number(len(text) - at),
        text[at:],
    )


@register.filter
def pretty(value: object) -> str:
    """JSON with its indentation. The template escapes it."""
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)
