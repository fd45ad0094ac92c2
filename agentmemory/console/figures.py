"""Times, durations, numbers and money, as every page writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

# A narrow space that never breaks: between the thousands of a number.
THIN = "\u202f"
# What stands where there is nothing: a dash.
NONE = "\u2013"
_STEPS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def number(value: float | None) -> str:
    """`1 234 567`, with thin spaces; a dash for nothing."""
    return NONE if value is None else f"{value:,.0f}".replace(",", THIN)


def money(value: Decimal | float | None, currency: str = "US$") -> str:
    """An amount with its currency, four places where it is below ten cents."""
    if value is None:
        return NONE
    places = 2 if value >= Decimal("0.1") or value == 0 else 4
    return f"{currency}{THIN}{value:,.{places}f}".replace(",", THIN)


def duration(span: timedelta | float) -> str:
    """A length of time in words, its two largest units at most: `2 h 5 min`."""
    seconds = span.total_seconds() if isinstance(span, timedelta) else float(span)
    if seconds < 1:
        return "less than 1 s"
    parts: list[str] = []
    for size, unit in _STEPS:
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{count:.0f} {unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part)


def when(moment: datetime | None, *, never: str = NONE) -> SafeString:
    """How long ago, or in how long; the exact time in UTC on hover."""
    if moment is None:
        return format_html('<span class="am-line">{}</span>', never)
    span = (timezone.now() - moment).total_seconds()
    if abs(span) < 1:
        words = "now"
    elif span > 0:
        words = f"{_largest(span)} ago"
    else:
        words = f"in {duration(-span)}"
    utc = moment.astimezone(UTC).isoformat()
    return format_html('<time datetime="{}" title="{}">{}</time>', utc, exact(moment), words)


def exact(moment: datetime) -> str:
    """The time in UTC, to the second."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _largest(seconds: float) -> str:
    size, unit = next(step for step in _STEPS if seconds >= step[0])
    return f"{seconds // size:.0f} {unit}"


def bar(part: float, whole: float, *, text: str, tone: str = "blue") -> SafeString:
    """A part of a whole as a bar, with its numbers beside it."""
    share = min(100.0, 100.0 * part / whole) if whole > 0 else 0.0
    return format_html(
        '<span class="am-bar"><progress class="am-bar-track am-{}" max="100" value="{}" aria-hidden="true"></progress>'
        '<span class="am-line">{}</span></span>',
        tone,
        f"{share:.1f}",
        text,
    )
