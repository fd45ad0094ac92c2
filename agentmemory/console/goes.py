"""What goes with the rows of an act, counted, on the page that asks."""

from __future__ import annotations

from collections.abc import Mapping

from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from agentmemory.console import figures


def with_it(title: str, counts: Mapping[str, int]) -> SafeString:
    """So many of each, zeros too: who asks wants to know that there are none."""
    shown = {what: figures.number(count) for what, count in counts.items()}
    return SafeString(render_to_string("console/goes.html", {"title": title, "counts": shown}))
