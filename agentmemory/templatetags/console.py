"""The console's words in templates: labels, times, numbers."""

from __future__ import annotations

import json

from django import template

from agentmemory.console import figures, labels

register = template.Library()

register.filter("when", figures.when)
register.filter("number", figures.number)
register.filter("money", figures.money)
register.filter("duration", figures.duration)
register.filter("chips", labels.chips)
register.simple_tag(labels.label, name="label")


@register.filter
def pretty(value: object) -> str:
    """JSON with its indentation. The template escapes it."""
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)
